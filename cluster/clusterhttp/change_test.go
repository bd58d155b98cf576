package clusterhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func changed(t *testing.T, w *httptest.ResponseRecorder, status int) Changed {
	t.Helper()
	expect(t, w, status, "converged")
	var c Changed
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Errorf("%v: %s", err, w.Body)
	}
	return c
}

// With wait=0 the API responds immediately, and the node drains a moment later.
func TestDrainWithoutWaiting(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		for range 20 { // the scheduler might hide a bug in a single attempt
			begin := time.Now()
			got := changed(t, do(h, "POST", "/v1/drain?wait=0", ""), 200)
			if took := time.Since(begin); took > toLoop || got.Converged || got.State != lease.Draining {
				t.Fatalf("after %v: %+v", took, got)
			}
			time.Sleep(5 * time.Second)
			if len(h.agent.Owned()) > 0 || !h.agent.Converged() {
				t.Fatal("it did not drain")
			}
			changed(t, do(h, "POST", "/v1/undrain?wait=0s", ""), 200)
			time.Sleep(5 * time.Second)
			c.Check()
		}
	})
}

// A caller that waits gets the response as soon as all members agree. If the wait ends first, the node continues to
// drain.
func TestDrainWaits(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		begin := time.Now()
		if got := changed(t, do(h, "POST", "/v1/drain", ""), 200); !got.Converged || got.State != lease.Draining || len(h.agent.Owned()) > 0 {
			t.Errorf("%+v, owns %d", got, len(h.agent.Owned()))
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("agreement took %v", took)
		}
		changed(t, do(h, "POST", "/v1/undrain", ""), 200)
		c.WaitAgreed(5 * time.Second)

		c.Pause("c") // still a member, but does not agree
		begin = time.Now()
		got := changed(t, do(h, "POST", "/v1/drain?wait=2s", ""), 200)
		if took := time.Since(begin); took != 2*time.Second || got.Converged || len(h.agent.Owned()) > 0 {
			t.Errorf("after %v: %+v, owns %d", took, got, len(h.agent.Owned()))
		}
		c.Resume("c")
		time.Sleep(20 * time.Second)
		if !h.agent.Converged() || h.agent.Snapshot().Self.State != lease.Draining {
			t.Error("draining did not continue")
		}
	})
}

func TestDrainOutlivesItsCaller(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/drain", nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
		time.Sleep(5 * time.Second)
		if len(h.agent.Owned()) > 0 || !h.agent.Converged() {
			t.Error("it did not drain")
		}
	})
}

// If the caller disconnects or the server stops, the call of the agent ends shortly after that, not at the end of the
// wait.
func TestCallEndsAfterItsCaller(t *testing.T) {
	for what, end := range map[string]func(hangUp func(), stop chan struct{}){
		"the caller disconnects": func(hangUp func(), _ chan struct{}) { hangUp() },
		"the server stops":       func(_ func(), stop chan struct{}) { close(stop) },
	} {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			ctx, hangUp := context.WithCancel(context.WithValue(t.Context(), stopKey{}, (<-chan struct{})(stop)))
			defer hangUp()
			time.AfterFunc(3*time.Second, func() { end(hangUp, stop) })
			begin, ended := time.Now(), make(chan time.Duration)
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/drain", nil)
			_, _ = (&api{log: quiet}).perform(httptest.NewRecorder(), r, maxWait, func(ctx context.Context) error {
				<-ctx.Done()
				ended <- time.Since(begin)
				return ctx.Err()
			})
			if responded, after := time.Since(begin), <-ended; responded != 3*time.Second || after != responded+minToLoop {
				t.Errorf("%s after 3 s: the response comes after %v, the call ends after %v", what, responded, after)
			}
		})
	}
}

// The timeouts of the server do not cut off a wait.
func TestDrainUnderServerTimeouts(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		srv := NewServer(h)
		srv.ReadTimeout, srv.WriteTimeout = time.Second, time.Second
		client := serve(t, srv).client(t)
		c.Pause("c")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		got, err := client.Drain(ctx)
		if took := time.Since(begin); err != nil || got.Converged || took != 4500*time.Millisecond {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
		c.Resume("c")
		time.Sleep(20 * time.Second)
	})
}

func TestWeightAndLoadSpread(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		a, b := h.agent, c.Agent("b")
		before := len(a.Owned())
		if got := changed(t, do(h, "POST", "/v1/load", `{"units":77}`), 200); got.Load != 77 {
			t.Errorf("%+v", got)
		}
		if got := changed(t, do(h, "POST", "/v1/weight", `{"weight":300}`), 200); got.Weight != 300 || got.Converged {
			t.Errorf("%+v", got)
		}
		if n := a.Snapshot().Table.Nodes()[0]; n.Weight != 300 { // so roost diff after roost weight sees the new table
			t.Errorf("the response came with the weight %d in the table", n.Weight)
		}
		time.Sleep(5 * time.Second)
		c.Check()
		if m := b.Members()[0]; m.ID != "a" || m.Load != 77 || m.Weight != 300 || len(a.Owned()) <= before {
			t.Errorf("b sees %+v; a owns %d, before %d", m, len(a.Owned()), before)
		}
		changed(t, do(h, "POST", "/v1/weight", `{"weight":0}`), 200)
		time.Sleep(5 * time.Second)
		if n := len(a.Owned()); n != 0 {
			t.Errorf("with weight 0 it owns %d", n)
		}
	})
}

// If the strategy fails, so that no table has the new weight, the response comes after a TTL with status 200.
func TestWeightWithoutTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy = hooked{placement.Rendezvous(), func() {
				if fail.Load() {
					panic("no such zone")
				}
			}}
		}})
		c.Start("a")
		c.WaitAgreed(3 * time.Second)
		fail.Store(true)
		begin := time.Now()
		got := changed(t, do(Handler(c.Agent("a"), Options{Log: quiet}), "POST", "/v1/weight", `{"weight":300}`), 200)
		if took := time.Since(begin); got.Weight != 300 || got.Converged || took != c.Agent("a").Config().LeaseTTL {
			t.Errorf("after %v: %+v", took, got)
		}
		if err := c.Agent("a").SetWeight(200); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the agent says %v", err)
		}
	})
}

// POST /v1/leave responds before the node has left, and can be called twice. If the caller disconnects, the node still
// leaves. In the meantime, /readyz fails, and its response contains the state.
func TestLeave(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		ctx, hangUp := context.WithCancel(t.Context())
		for range 2 {
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/leave", nil)
			w := httptest.NewRecorder()
			begin := time.Now()
			h.ServeHTTP(w, r)
			changed(t, w, 202)
			if took := time.Since(begin); took > 0 {
				t.Errorf("the answer took %v", took)
			}
		}
		hangUp()
		expect(t, do(h, "GET", "/healthz", ""), 200, "ok") // has not left yet
		seen := make(map[string]bool)                      // states that probes saw during the leave
		for begin := time.Now(); time.Since(begin) < cluster.MaxLeaveWait; time.Sleep(10 * time.Millisecond) {
			var p Problem
			if err := json.Unmarshal(do(h, "GET", "/readyz", "").Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			seen[p.State] = true
		}
		if !seen["draining"] || !seen["left"] {
			t.Errorf("probes saw the states %v", seen)
		}
		if !h.closed() || h.agent.Err() != nil {
			t.Fatal("it did not leave")
		}
		for _, m := range c.Agent("b").Members() {
			if m.ID == "a" {
				t.Error("b still sees a")
			}
		}
		expect(t, do(h, "POST", "/v1/leave", ""), 503, CodeClosed)
	})
}
