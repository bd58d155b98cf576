package fleettest

import (
	"maps"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

// If many callers join a room for the first time at the same moment, the claim of one caller wins, and all calls return
// its node. The joins cost one command per instance, and none once the pin is cached there.
func TestFirstJoins(t *testing.T) {
	redis := redistest.Start(t)
	f := newFleet(t, setup{URL: redis.URL(), Budget: timeout}, "a", "b", "c", "d")
	const callers = 200
	rooms := names(map[bool]int{true: 100, false: 1000}[testing.Short() || underRace])

	first := f.count(redis, func() {
		for _, room := range rooms {
			f.joinAll(room, callers)
		}
	})
	most := int64(len(f.nodes) * len(rooms))
	t.Logf("%d × %d first joins over %d instances: %d calls of the store, %v", len(rooms), callers, len(f.nodes), first.swaps, first.commands)
	if first.swaps > most || first.swaps < int64(len(rooms)) || first.swaps != first.ops {
		t.Errorf("%d calls of the store with %d ops; want one for each room and instance at most, thus %d", first.swaps, first.ops, most)
	}
	if got := first.commands["evalsha"]; got != first.swaps+first.heartbeats {
		t.Errorf("%d EVALSHA for %d calls and %d heartbeats; want one each", got, first.swaps, first.heartbeats)
	}
	cached := f.count(redis, func() {
		for _, room := range rooms {
			for _, n := range f.nodes {
				if a, err := n.rooms.Resolve(t.Context(), room, affinity.Demand{Size: 3}); err != nil || a.Source != affinity.Cached {
					t.Fatalf("%s again: %#v, %v; want it cached", room, a, err)
				}
			}
		}
	})
	if cached.swaps != 0 || cached.commands["evalsha"] != cached.heartbeats {
		t.Errorf("cached: %d calls of the store, %d heartbeats, commands %v", cached.swaps, cached.heartbeats, cached.commands)
	}
	noScan(t, redis)
}

// joinAll resolves a room concurrently from callers at all nodes.
func (f *fleet) joinAll(room string, callers int) {
	f.t.Helper()
	answers := make([]affinity.Assignment, callers)
	errs := make([]error, callers)
	begin := make(chan struct{})
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			<-begin
			answers[i], errs[i] = f.nodes[i%len(f.nodes)].rooms.Resolve(f.t.Context(), room, affinity.Demand{Size: i % 7})
		})
	}
	close(begin)
	wait.Wait()
	winners := make(map[int]bool) // instances that made the first claim
	for i, a := range answers {
		if errs[i] != nil || a.Incarnation != answers[0].Incarnation || a.Epoch != answers[0].Epoch || a.Epoch == 0 {
			f.t.Fatalf("%s: %#v, %v; and %#v", room, a, errs[i], answers[0])
		}
		if a.Source == affinity.Hash || a.Source == affinity.Override {
			winners[i%len(f.nodes)] = true
		}
	}
	if len(winners) != 1 {
		f.t.Fatalf("%s: the claims of instances %v were first", room, winners)
	}
	if owner, err := f.nodes[0].agent.Place(room); err != nil || owner.ID != answers[0].Node {
		f.t.Fatalf("%s lives on %s; its partition's owner, with headroom, is %v (%v)", room, answers[0].Node, owner, err)
	}
}

// tally is the cost of some work.
type tally struct {
	swaps, ops, heartbeats int64
	commands               map[string]int64 // as counted by the server, without our own commands
}

// count runs work and returns its cost. No call is in progress when it starts and ends.
func (f *fleet) count(redis *redistest.Server, work func()) tally {
	f.t.Helper()
	still := func(look func()) {
		for _, n := range f.nodes {
			n.store.gate.Lock()
			defer n.store.gate.Unlock()
		}
		look()
	}
	sum := func() (all tally) {
		for _, n := range f.nodes {
			all.swaps += n.store.swaps.Load()
			all.ops += n.store.swapped.Load()
			all.heartbeats += n.store.heartbeats.Load()
		}
		all.commands = redis.Commands()
		return all
	}
	var before, after tally
	still(func() { before = sum() })
	work()
	still(func() { after = sum() })
	maps.DeleteFunc(after.commands, func(name string, n int64) bool { return n == before.commands[name] || name == "info" })
	for name := range after.commands {
		after.commands[name] -= before.commands[name]
	}
	after.swaps -= before.swaps
	after.ops -= before.ops
	after.heartbeats -= before.heartbeats
	return after
}
