package clusterhttp

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A fenced agent has had no routing clients for a while. If a routing client connects before the agent has rejoined,
// the client gets the agent's last table, marked as stale, and later the next table.
func TestTableDuringFence(t *testing.T) {
	inTrio(t, Options{Log: quiet}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		agent := c.Agent("a")
		leave := h.whole.tables.enter()
		if state, _ := h.whole.tables.latest.Get(); *state == nil {
			t.Fatal("the first routing client sees no table")
		}
		leave()
		c.Pause("a")
		time.Sleep(time.Minute)
		c.Resume("a")
		waitFor(t, "it joins again", func() bool { return agent.Snapshot().Fenced })
		defer h.whole.tables.enter()()
		if state, _ := h.whole.tables.latest.Get(); *state == nil || !(*state).Stale || len((*state).Members) != 3 {
			t.Errorf("a routing client is sent %+v, want the last table, stale", *state)
		}
		expect(t, do(h, "GET", "/v1/place?key=x", ""), 200, `"stale":true`)
		expect(t, do(h, "GET", "/v1/owners?key=x", ""), 200, `"stale":true`)
		expect(t, do(h, "GET", "/v1/partitions", ""), 200, `"stale":true`)
		expect(t, do(h, "GET", "/v1/members", ""), 200, `"stale":true`)
		expect(t, do(h, "GET", "/v1/owned", ""), 200, `"partitions":[]`)
		expect(t, do(h, "GET", "/readyz", ""), 503, `"state":"joining"`)
		c.WaitAgreed(20 * time.Second)
		if state, _ := h.whole.tables.latest.Get(); *state == nil || (*state).Stale || (*state).Table != agent.Snapshot().Table {
			t.Errorf("%+v after it has joined", *state)
		}
	})
}
