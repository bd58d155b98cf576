package node

import (
	"testing"
	"time"
)

// A clock near the limit is logged once a minute, its end as often as its beginning. Commands are logged each time.
func TestHoldLog(t *testing.T) {
	for cause, want := range map[Cause]int{CauseClockAhead: 2, CauseDraining: 12, CauseIsolated: 12} {
		w := newNetwork(t, nil, "a")
		n := w.nodes["a"]
		for range 12 {
			w.now = w.now.Add(5 * time.Second)
			n.life.hold(w.now, Hold{Cause: cause, Reason: "it happened"})
			n.life.hold(w.now.Add(time.Second), Hold{Cause: cause, Reason: "it happened"}) // is stated again
			w.now = w.now.Add(5 * time.Second)
			n.life.release(cause)
		}
		w.turn("a")
		begun, ended := w.logged("a", "owns nothing", "cause", string(cause)), w.logged("a", "hold ended", "cause", string(cause))
		if begun != want || ended != want {
			t.Errorf("%s: %d beginnings and %d ends are logged, want %d", cause, begun, ended, want)
		}
	}
}

// A fence ends the holds that have to be looked at again, and says so.
func TestFenceEndsHolds(t *testing.T) {
	w := newNetwork(t, func(c *Config) { c.MinMembers = 3 }, "a", "b")
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

// A node that has left has no holds: what they advise helps no more.
func TestLeftWithoutHolds(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	n := w.nodes["a"]
	n.Drain(w.now)
	if holds := n.View().Holds; len(holds) != 1 || holds[0].Cause != CauseDraining {
		t.Errorf("a node that drains has %v", holds)
	}
	n.Leave(w.now)
	if holds := n.View().Holds; len(holds) > 0 {
		t.Errorf("a node that has left has %v", holds)
	}
}
