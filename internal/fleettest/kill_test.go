package fleettest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// many returns n, or a smaller number if n would take too long.
func many(n int) int {
	if testing.Short() || underRace {
		return n / 10
	}
	return n
}

// When a node dies, exactly its rooms move. No room is lost, and no pin names the dead node.
func TestKill(t *testing.T) {
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
	if heirs := h.unharmed(before, look.mustPins(h.rooms)); heirs != 3 {
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

// waitGone waits until no pin in the index names an incarnation.
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

// unharmed fails the test unless exactly the rooms of the dead node c have moved to live nodes, and all other rooms are
// still hosted on their old nodes.
func (h *herd) unharmed(before, after map[string]pinstore.Pin) (heirs int) {
	h.t.Helper()
	const dead = "c"
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

func (h *herd) same(before, after map[string]pinstore.Pin) error {
	for _, room := range h.rooms {
		if before[room] != after[room] {
			return fmt.Errorf("%s moved from %#v to %#v", room, before[room], after[room])
		}
	}
	return nil
}

// A node dies while one of three shards hangs. Its rooms on the other shards get new homes without delay, and the rest
// when the shard has recovered. No other room moves.
func TestKillWhileShardHangs(t *testing.T) {
	long(t)
	t.Parallel()
	redis := redistest.StartCluster(t, 3, 0)
	redis.Partial()
	look := newEye(t, redis.URL())
	h := newHerd(t, setup{URL: redis.URL()}, "a", "b", "c")
	h.host(names(200))
	before := look.mustPins(h.rooms)

	lives := redis.Owner("roost:lives")
	var shard *redistest.Server
	var up []string // rooms of c
	down := 0
	for room, pin := range before {
		at := redis.Owner(fmt.Sprintf("roost:{%d}:l", placement.Of(room, partitions)))
		if shard == nil && at != lives {
			shard = at
		}
		switch {
		case pin.Node != "c":
		case at == shard:
			down++
		default:
			up = append(up, room)
		}
	}
	if down == 0 || len(up) == 0 {
		t.Fatalf("%d rooms of c are in the shard that will hang, %d are not", down, len(up))
	}

	dead := h.nodes["c"].incarnation
	shard.Pause()
	h.kill("c")
	since := time.Now()
	redistest.Eventually(t, "new homes for the rooms on shards that answer", func() error {
		pins, err := look.pins(up)
		for room, pin := range pins {
			if pin.Incarnation == dead {
				return fmt.Errorf("%s has none, of %d", room, len(up))
			}
		}
		return err
	})
	t.Logf("%d of %d rooms of c have new homes after %v", len(up), len(up)+down, time.Since(since).Round(time.Millisecond))
	shard.Resume()
	h.waitGone(look, dead, time.Now())
	h.unharmed(before, look.mustPins(h.rooms))
}

// A node dies while Redis is down for ten seconds. In the meantime, the other nodes host some of its rooms without the
// store, and keep them. Once Redis has returned, each of the dead node's rooms gets one new home.
func TestKillWhileRedisIsDead(t *testing.T) {
	long(t)
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	look := newEye(t, redis.URL())
	h := newHerd(t, setup{URL: redis.URL()}, "a", "b", "c")
	h.host(names(300))
	before := look.mustPins(h.rooms)
	dead := h.nodes["c"].incarnation
	redis.Kill()
	h.kill("c")
	since := time.Now()
	h.waitAgreed() // by gossip
	var orphans []string
	for room, pin := range before {
		if pin.Incarnation == dead && len(orphans) < 20 {
			orphans = append(orphans, room)
		}
	}
	alone := make(map[string]lease.NodeID) // the node that hosts a room without the store
	split := make(map[string]bool)         // rooms that two nodes host without the store
	for _, p := range h.nodes {
		redistest.Eventually(t, "answers without the store", func() error { // the table changes a moment after the node has died
			for i, a := range p.rooms("Resolve", orphans) {
				if a.Epoch != 0 || h.nodes[a.Node] == nil {
					return fmt.Errorf("%s resolves %s to %#v", p.id, orphans[i], a)
				}
				if hosted := h.nodes[a.Node].rooms("Host", orphans[i:i+1])[0]; hosted.Err == "" {
					if was := alone[orphans[i]]; was != "" && was != a.Node {
						split[orphans[i]] = true
					}
					alone[orphans[i]] = a.Node
				}
			}
			return nil
		})
	}
	if len(alone) == 0 {
		t.Error("no room is hosted without the store")
	}
	settle(t, "without Redis", 10*time.Second-time.Since(since), func() error { return h.kept(before, dead) })
	redis.Restart()
	since = time.Now()
	h.waitGone(look, dead, since)
	after := look.mustPins(h.rooms)
	h.unharmed(before, after)
	redistest.Eventually(t, "one home of each room", func() error { return h.oneHome(orphans, after) })
	for room, id := range alone {
		if pin := after[room]; pin.Node != id && !split[room] {
			t.Errorf("%s was hosted by %s alone, and is pinned to %v", room, id, pin)
		}
	}
	for room, pin := range after { // the clients of the dead node's rooms have returned
		if before[room].Incarnation == dead {
			if a := h.settled("Host", []string{room}, h.nodes[pin.Node])[0]; a.Epoch != pin.Epoch {
				t.Errorf("%s is hosted as %+v, and pinned to %v", room, a, pin)
			}
		}
	}
	if err := errors.Join(h.oneHome(orphans, after), h.same(after, look.mustPins(h.rooms))); err != nil {
		t.Error(err)
	}
}

// kept returns an error if a live node has lost a room.
func (h *herd) kept(pins map[string]pinstore.Pin, dead lease.Incarnation) error {
	hosted := make(map[lease.NodeID][]string)
	for room, pin := range pins {
		if pin.Incarnation != dead {
			hosted[pin.Node] = append(hosted[pin.Node], room)
		}
	}
	for id, rooms := range hosted {
		for i, a := range h.nodes[id].rooms("Hosted", rooms) {
			if a.Lost {
				return fmt.Errorf("%s is lost at %s: %s", rooms[i], id, a.Err)
			}
		}
	}
	return nil
}

// oneHome returns an error if a node hosts a room that is pinned to another node.
func (h *herd) oneHome(rooms []string, pins map[string]pinstore.Pin) error {
	for id, p := range h.nodes {
		for i, a := range p.rooms("Hosted", rooms) {
			if pin := pins[rooms[i]]; !a.Lost && (pin.Incarnation != p.incarnation || pin.Epoch != a.Epoch) {
				return fmt.Errorf("%s hosts %s as %+v; it is pinned to %v", id, rooms[i], a, pin)
			}
		}
	}
	return nil
}
