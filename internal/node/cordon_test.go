package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// Any member can cordon any other member. A cordon ends at its set time, or earlier if it is canceled. A cordon of an
// unknown node or of the last candidate is refused.
func TestCordon(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	cordon := func(id lease.NodeID, d time.Duration, want error) {
		t.Helper()
		if err := w.nodes["a"].Cordon(w.now, id, d, "slow disk"); !errors.Is(err, want) {
			t.Errorf("cordon %s for %v: %v, want %v", id, d, err, want)
		}
	}
	owners := func(when string, want ...string) {
		t.Helper()
		for _, id := range w.ids {
			owns := w.owned(id) > 0
			wanted := false
			for _, o := range want {
				wanted = wanted || o == id
			}
			if owns != wanted {
				t.Errorf("%s: %s owns %d partitions", when, id, w.owned(id))
			}
		}
	}
	cordon("nobody", time.Minute, node.ErrNotMember)
	cordon("b", 10*time.Second, nil)
	w.run(time.Second)
	owners("b is cordoned", "a", "c")
	cordon("a", time.Minute, nil)
	w.run(time.Second)
	owners("a and b are", "c")
	cordon("c", time.Minute, node.ErrLastCandidate)
	cordon("b", time.Minute, nil) // c remains a candidate
	cordon("b", 10*time.Second, nil)
	w.nodes["c"].Drain(w.now)
	w.run(time.Second)
	owners("c drains: no candidate is left", "a", "b")
	if v := w.nodes["b"].View(); !v.Live.Spared || len(v.Live.Cordoned) != 2 {
		t.Errorf("b spares %v, of %+v", v.Live.Spared, v.Live.Cordoned)
	}
	w.nodes["c"].Undrain(w.now)
	w.run(time.Second)
	owners("c is back", "c")
	cordon("a", 0, nil)
	w.run(time.Second)
	owners("a is back", "a", "c")
	w.run(10 * time.Second)
	owners("b is back", "a", "b", "c")
	for _, id := range w.ids {
		lines := make(map[string]int)
		for _, e := range w.last[id].Log {
			lines[e.Message]++
		}
		if lines["member cordoned; it owns nothing"] < 3 || lines["cordon ended"] != 2 ||
			lines["cordons have no effect"] != 1 {
			t.Errorf("%s logs %v", id, lines)
		}
	}
}

// The cordon of a node can be ended even after the members have forgotten the node.
func TestUncordonForgotten(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	w.run(2 * time.Second)
	a := w.nodes["a"]
	if err := a.Cordon(w.now, "b", time.Hour, "slow disk"); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	w.mute["b"] = true
	for range 60 {
		if !a.Leases().Knows("b") {
			break
		}
		w.run(10 * time.Second)
	}
	if a.Leases().Knows("b") || len(a.View().Live.Cordoned) != 1 {
		t.Fatalf("b is known: %v; cordons: %+v", a.Leases().Knows("b"), a.View().Live.Cordoned)
	}
	if err := a.Cordon(w.now, "b", time.Minute, ""); !errors.Is(err, node.ErrNotMember) {
		t.Errorf("a cordon of a forgotten node: %v", err)
	}
	if err := a.Cordon(w.now, "b", 0, ""); err != nil {
		t.Error(err)
	}
	w.run(time.Second)
	for _, id := range []string{"a", "c"} {
		if n := len(w.nodes[id].View().Live.Cordoned); n != 0 {
			t.Errorf("%s knows %d cordons", id, n)
		}
	}
}
