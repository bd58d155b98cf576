package fleettest

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/presence"
)

// A hundred new rooms at once, through all instances, with three of five nodes full: the
// rooms must not all go to the node with the lowest load at that moment.
func TestBurst(t *testing.T) { // S0.2, S0.3
	redis := redistest.Start(t)
	f := newFleet(t, setup{URL: redis.URL(), Capacity: 4000, Budget: patience}, nil, "a", "b", "c", "d", "e")
	base := map[lease.NodeID]int64{"a": 3190, "b": 3190, "c": 3190, "d": 100, "e": 0}
	f.loads(base)
	const participants, cost = 5, 20
	got := make(map[lease.NodeID]int64)
	var mu sync.Mutex
	each(50, names("room-", 100), func(i int, room string) {
		a, err := f.nodes[i%len(f.nodes)].rooms.Resolve(t.Context(), room, affinity.Demand{Size: participants})
		mu.Lock()
		defer mu.Unlock()
		if got[a.Node] += cost; err != nil {
			t.Error(err)
		}
	})
	for id, load := range base {
		t.Logf("%s carried %4d of 3200 units, and was given %4d", id, load, got[id])
		if load > 3000 && got[id] > 0 {
			t.Errorf("%s had no headroom, and got %d units", id, got[id])
		}
	}
	// An instance knows only its own reservations; so each of the five gives e at most
	// the difference to d.
	if d, e := base["d"]+got["d"], base["e"]+got["e"]; e > d+800 || d > e+800 {
		t.Errorf("then d carries %d units and e carries %d: rooms pile up on one node", d, e)
	}
	noScan(t, redis)
}

// loads sets the loads of nodes, and waits until all nodes know them.
func (f *fleet) loads(units map[lease.NodeID]int64) {
	f.t.Helper()
	for id, load := range units {
		f.node(id).agent.SetLoad(load)
	}
	redistest.Eventually(f.t, "all loads to be known", func() error {
		for _, n := range f.nodes {
			known := make(map[lease.NodeID]int64)
			for _, m := range n.agent.Members() {
				known[m.ID] = m.Load
			}
			if !maps.Equal(known, units) {
				return fmt.Errorf("%v knows %v", n.incarnation(), known)
			}
		}
		return nil
	})
}

// The participants of a room decide its cost in a move, even if it was pinned with a lower
// size.
func TestPresenceDecidesTheCost(t *testing.T) { // S0.3, S1.7
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	seats, err := redisstore.Open(t.Context(), redisstore.Options{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = seats.Close() })
	presence, err := presence.Start(seats.Presence(), partitions, presence.SFU())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = presence.Close() })
	f := newFleet(t, setup{URL: redis.URL(), Capacity: 1000, Budget: 2 * time.Second, TTL: leaseTTL}, func(c *affinity.Config) {
		c.Counter = presence
	}, "a", "b", "c")
	// 20 participants cost 380 units, for which b has no headroom below 800.
	f.loads(map[lease.NodeID]int64{"a": 0, "b": 500, "c": 0})
	both := f.nodes[0].ranked(2, "c", "b")
	full, empty := both[0], both[1]
	for _, room := range both {
		if a, err := f.nodes[0].rooms.Resolve(t.Context(), room, affinity.Demand{Size: 2}); err != nil || a.Node != "c" {
			t.Fatalf("%s lives on %+v, %v", room, a, err)
		}
	}
	const n = 20
	for i := range n {
		if err := presence.Join(t.Context(), full, fmt.Sprint("user-", i)); err != nil {
			t.Fatal(err)
		}
	}
	f.node("c").close()
	look := newEye(t, redis.URL())
	redistest.Eventually(t, "the rooms to move", func() error {
		pins := look.mustPins(both)
		if pins[full].Node == "c" || pins[empty].Node == "c" {
			return errNotYet
		}
		return nil
	})
	pins := look.mustPins(both)
	if pin := pins[full]; pin.Node != "a" || pin.Size != n {
		t.Errorf("the room of %d is pinned to %v for %d; want a, which has headroom for that many", n, pin.Incarnation, pin.Size)
	}
	if pin := pins[empty]; pin.Node != "b" || pin.Size != 2 {
		t.Errorf("the empty room is pinned to %v for %d; want b, its partition's next owner, with its old size", pin.Incarnation, pin.Size)
	}
	noScan(t, redis)
}
