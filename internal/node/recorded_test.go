package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// After a crash of all other nodes, the survivor keeps what it owns, even if an attacker replays their messages. The
// attacker sends an old full state over streams, and the last packets before the crash while their leases are still
// valid.
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

// A cluster starts although an attacker keeps sending every node a recorded state of other nodes.
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
