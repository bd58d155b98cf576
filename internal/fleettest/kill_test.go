package fleettest

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// many is n, or fewer if n would take too long.
func many(n int) int {
	if testing.Short() || underRace {
		return n / 10
	}
	return n
}

// When a node dies, exactly its rooms move, none is lost, and no pin names it.
func TestKill(t *testing.T) { // S0.7, S0.8
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	look := newEye(t, redis.URL())
	h := newHerd(t, setup{URL: redis.URL()}, "a", "b", "c", "d")
	h.host(names(many(20_000)))
	before := look.mustPins(h.rooms)

	dead := h.nodes["c"].incarnation
	h.kill("c")
	since := time.Now()
	h.waitGone(look, dead, since)
	if heirs := h.unharmed(before, look.mustPins(h.rooms), "c"); heirs != 3 {
		t.Errorf("its rooms went to %d nodes; want all remaining nodes", heirs)
	}
	noScan(t, redis)

	// Nodes with a cached pin know the new node.
	after := look.mustPins(h.rooms)
	some := h.rooms[:len(h.rooms)/4]
	for id, p := range h.nodes {
		for i, a := range p.rooms("Resolve", some) {
			if pin := after[some[i]]; a.Incarnation != pin.Incarnation || a.Epoch != pin.Epoch {
				t.Fatalf("%s resolves %s to %v (%#v); it is pinned to %v", id, some[i], a.Incarnation, a, pin)
			}
		}
	}
	settle(t, "afterwards", time.Second, func() error { return h.same(after, look.mustPins(h.rooms)) })
}

// waitGone waits until no pin names an incarnation by the index.
func (h *herd) waitGone(look *eye, dead lease.Incarnation, since time.Time) {
	h.t.Helper()
	redistest.Eventually(h.t, fmt.Sprintf("pins of %v to be replaced", dead), func() error {
		n, err := look.of(dead)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%d rooms remain", n)
		}
		return nil
	})
	h.t.Logf("%v later no pin names %s any more", time.Since(since).Round(time.Millisecond), dead.Node)
}

// unharmed fails the test unless exactly the rooms of a dead node have moved to live nodes,
// and all others are hosted on their old nodes.
func (h *herd) unharmed(before, after map[string]affinity.Pin, dead lease.NodeID) (heirs int) {
	h.t.Helper()
	if len(before) != len(h.rooms) || len(after) != len(h.rooms) {
		h.t.Fatalf("%d rooms are pinned, %d were, of %d", len(after), len(before), len(h.rooms))
	}
	moved := make(map[lease.NodeID]int)
	stay := make(map[lease.NodeID][]string)
	for room, was := range before {
		is := after[room]
		switch p := h.nodes[is.Node]; {
		case was.Node == dead:
			moved[is.Node]++
			if p == nil || is.Incarnation != p.incarnation || is.Epoch <= was.Epoch {
				h.t.Fatalf("%s was pinned to %#v of the dead and is pinned to %#v", room, was, is)
			}
		case is != was:
			h.t.Fatalf("%s moved from %#v to %#v; %s died", room, was, is, dead)
		default:
			stay[is.Node] = append(stay[is.Node], room)
		}
	}
	h.t.Logf("rooms of %s went to %v", dead, moved)
	for id, rooms := range stay {
		for i, a := range h.nodes[id].rooms("Hosted", rooms) {
			if a.Lost || a.Epoch != after[rooms[i]].Epoch {
				h.t.Fatalf("%s does not host %s any more: %#v; its pin is %#v", id, rooms[i], a, after[rooms[i]])
			}
		}
	}
	return len(moved)
}

func (h *herd) same(before, after map[string]affinity.Pin) error {
	for _, room := range h.rooms {
		if before[room] != after[room] {
			return fmt.Errorf("%s moved from %#v to %#v", room, before[room], after[room])
		}
	}
	return nil
}

// A node that dies during an outage of Redis is detected afterwards.
func TestKillWhileRedisIsAway(t *testing.T) { // S0.7, S0.8
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	look := newEye(t, redis.URL())
	h := newHerd(t, setup{URL: redis.URL()}, "a", "b", "c")
	h.host(names(500))
	before := look.mustPins(h.rooms)
	dead := h.nodes["c"].incarnation
	redis.Pause()
	h.kill("c")
	h.waitAgreed() // by gossip
	redis.Resume()
	since := time.Now()
	h.waitGone(look, dead, since)
	h.unharmed(before, look.mustPins(h.rooms), "c")
	noScan(t, redis)
}
