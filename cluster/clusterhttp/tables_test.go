package clusterhttp

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A follower that comes while an agent joins again, after a time without followers, waits for the next table:
// the last one that the agent sent may be of long ago.
func TestNoOldTable(t *testing.T) {
	inTrio(t, Options{Log: quiet}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		agent := c.Agent("a")
		leave := h.tables.enter(agent)
		if state, _ := h.tables.latest.Get(); *state == nil {
			t.Fatal("the first follower sees no table")
		}
		leave()
		c.Pause("a")
		time.Sleep(time.Minute)
		c.Resume("a")
		waitFor(t, "it joins again", func() bool { return agent.Snapshot().Table == nil })
		defer h.tables.enter(agent)()
		if state, _ := h.tables.latest.Get(); *state != nil {
			t.Errorf("a follower is sent version %d, of before the pause", (*state).Version)
		}
		c.WaitAgreed(20 * time.Second)
		if state, _ := h.tables.latest.Get(); *state == nil || (*state).Stale || (*state).Table != agent.Snapshot().Table {
			t.Errorf("%+v after it has joined", *state)
		}
	})
}
