package node_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// A fence ends the holds that the node has to detect again, and logs their end.
func TestFenceEndsHolds(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.MinMembers = 3 }, "a", "b")
	if w.logged("a", "owns nothing", "cause", "isolated") == 0 {
		t.Fatal("a is not isolated")
	}
	w.add("c")
	w.stuck["a"] = true
	w.run(20 * time.Second)
	w.stuck["a"] = false
	w.run(20 * time.Second)
	if w.logged("a", "hold ended", "cause", "isolated") != w.logged("a", "owns nothing", "cause", "isolated") {
		t.Errorf("the log of a: %v", w.last["a"].Log)
	}
	w.agreed(t)
}

// A node that has left has no holds, because the advice for a hold would no longer help.
func TestLeftWithoutHolds(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	n := w.nodes["a"]
	n.Drain(w.now)
	if holds := n.View().Holds; len(holds) != 1 || holds[0].Cause != node.CauseDraining {
		t.Errorf("a node that drains has %v", holds)
	}
	n.Leave(w.now)
	if holds := n.View().Holds; len(holds) > 0 {
		t.Errorf("a node that has left has %v", holds)
	}
}

// The hold clock_ahead is logged at most once a minute, so that a clock near the limit does not fill the log. Its end
// is logged as often as its beginning. Other holds are logged each time.
func TestHoldLog(t *testing.T) {
	const times = 12
	for cause, tt := range map[node.Cause]struct {
		begin, end func(w *network)
		want       int
	}{
		node.CauseClockAhead: {
			func(w *network) { w.clock["a"] = 2300 * time.Millisecond },
			func(w *network) { w.clock["a"] = 0 },
			2,
		},
		node.CauseDraining: {
			func(w *network) { w.nodes["a"].Drain(w.now) },
			func(w *network) { w.nodes["a"].Undrain(w.now) },
			times,
		},
		node.CauseIsolated: {
			func(w *network) { w.stuck["b"], w.stuck["c"] = true, true },
			func(w *network) { w.stuck["b"], w.stuck["c"] = false, false },
			times,
		},
	} {
		w := newNetwork(t, func(c *node.Config) {
			c.MaxSkew, c.RejoinInterval, c.DisableFlapDamping = 2*time.Second, time.Second, true
			if c.Self.ID == "a" {
				c.MinMembers = 2
			}
		}, "b", "a", "c")
		before, half := w.now, 5*time.Second
		if cause == node.CauseIsolated {
			half = 10 * time.Second // leases have to expire
		}
		for range times {
			for _, change := range []func(*network){tt.begin, tt.end} {
				change(w)
				w.run(half)
			}
		}
		begun, ended := w.logged("a", "owns nothing", "cause", string(cause)), w.logged("a", "hold ended", "cause", string(cause))
		if begun != tt.want || ended != tt.want {
			t.Errorf("%s: %d beginnings and %d ends are logged in %v, want %d", cause, begun, ended, w.now.Sub(before), tt.want)
		}
	}
}
