package node_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// A fence ends the holds that have to be looked at again, and says so.
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

// A node that has left has no holds: what they advise helps no more.
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
