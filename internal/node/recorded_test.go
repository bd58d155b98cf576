package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// The survivor of a crash of all others keeps what it owns, whatever an attacker has recorded of them: a full
// state of long ago, over streams, or the last packets before the crash, while their leases hold.
func TestRecordedTrafficFencesNoSurvivor(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	a, state := w.nodes["a"], w.nodes["b"].Sync(w.now)
	var packet []byte
	w.sent = func(from string, p node.Packet) {
		if from == "b" && p.To == "a" {
			packet = slices.Clone(p.Bytes)
		}
	}
	w.run(10 * time.Minute)
	w.sent = nil
	w.stuck["b"], w.stuck["c"] = true, true
	for range 300 {
		w.run(100 * time.Millisecond)
		a.Receive(w.now, packet)
		a.Merge(w.now, state)
	}
	if a.View().Stats.Fences > 0 || w.owned("a") != 8 {
		t.Errorf("%d fences, owns %d partitions of 8, %v", a.View().Stats.Fences, w.owned("a"), a.View().Phase)
	}
}

// A cluster starts in spite of an attacker that sends each node a recorded state of other nodes, again and again.
func TestStartInRecordedTraffic(t *testing.T) {
	past := newNetwork(t, nil, "x", "y", "z")
	state := past.nodes["y"].Sync(past.now)
	w := newNetwork(t, func(c *node.Config) { c.Seeds = []string{"a", "b", "c"} })
	w.now = past.now.Add(time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		w.add(id)
	}
	for range 60 {
		w.run(270 * time.Millisecond)
		for _, id := range w.ids {
			w.nodes[id].Merge(w.now, state)
		}
	}
	for _, id := range w.ids {
		if n := w.nodes[id]; n.View().Phase != node.Active {
			t.Errorf("%s is %v: %v", id, n.View().Phase, n.View().Waits)
		}
	}
}
