package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

func TestOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{SoftCeiling: 90}, "a", "b", "c")
		room := "big"
		owner := f.owner(room)
		f.Agent(string(owner)).SetLoad(400)
		others := slices.DeleteFunc(f.IDs(), func(id string) bool { return id == string(owner) })
		f.Agent(others[0]).SetLoad(300)
		time.Sleep(5 * time.Second)

		a := f.resolve("a", room, 25) // 600 units: too many for the owner, who carries 400 of 900
		if a.Node != lease.NodeID(others[0]) && a.Node != lease.NodeID(others[1]) || a.Source != affinity.Override {
			t.Fatalf("%+v, want an override of %s", a, owner)
		}
		if a.Node != lease.NodeID(others[1]) {
			t.Errorf("it went to %s, which carries 300, and not to the idle %s", a.Node, others[1])
		}
		if got := f.resolve("b", room, 2); got.Node != a.Node {
			t.Errorf("another instance says %s, the first one said %s", got.Node, a.Node)
		}
		if got := f.resolve("b", "small", 2); got.Node != f.owner("small") || got.Source != affinity.Hash {
			t.Errorf("a small room: %+v, want the owner %s", got, f.owner("small"))
		}
		e, err := f.rooms["c"].Explain(t.Context(), room, affinity.Demand{Size: 25})
		if err != nil || !e.Pinned || e.Assignment.Node != a.Node || len(e.Candidates) != 3 {
			t.Fatalf("explained: %+v, %v", e, err)
		}
		for _, c := range e.Candidates {
			if c.Taken != (c.Member.ID == a.Node) || c.Why == "" {
				t.Errorf("candidate %s: taken %v, %q", c.Member.ID, c.Taken, c.Why)
			}
		}
	})
}

// Explain must not say that the node of a room has no headroom for it, because the room is already there. After a
// crash, Explain must say that the new node hosts the room only once somebody joins.
func TestExplainTheNodeOfARoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{}, "a", "b", "c")
		why := func(at string) string {
			t.Helper()
			e, err := f.rooms[at].Explain(t.Context(), "big", affinity.Demand{Size: 25})
			if err != nil || !e.Pinned {
				t.Fatalf("explained: %+v, %v", e, err)
			}
			i := slices.IndexFunc(e.Candidates, func(c affinity.Candidate) bool { return c.Taken })
			return e.Candidates[i].Why
		}
		want := func(at, want string) {
			t.Helper()
			if got := why(at); got != want {
				t.Errorf("%s says %q, want %q", at, got, want)
			}
		}
		host := func(at string) string {
			t.Helper()
			f.host(at, "big", 25)
			return string(f.resolve(at, "big", 25).Node)
		}
		first := host("a")
		second := f.not(first)
		f.Agent(first).SetLoad(1756)
		time.Sleep(20 * time.Second) // now the load includes the room, which was only reserved before
		want(first, "hosts it: 600 of its 1,756 units")
		want(second, "lives there: it costs 600 units, and the node carries 1,756")
		f.Agent(first).SetLoad(5)
		time.Sleep(5 * time.Second)
		want(first, "hosts it: it costs 600 units, and the node reports 5")

		f.crash(first)
		time.Sleep(soon)
		home := string(f.resolve(second, "big", 25).Node)
		for _, id := range f.IDs() {
			switch id {
			case first:
			case home:
				want(id, "pinned here, and hosted once somebody joins: it costs 600 units, and the node carries 0")
			default:
				want(id, "lives there: it costs 600 units, and the node carries 0")
			}
		}
		at := host(second)
		f.Agent(at).SetLoad(700)
		time.Sleep(20 * time.Second)
		want(at, "hosts it: 600 of its 700 units")
	})
}

// Resolving a room with a known pin takes one round trip, or two if the pin has disappeared unnoticed.
func TestKnownPinIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory(), mute: true}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		var known affinity.Assignment
		for i, c := range []struct {
			source affinity.Source
			trips  int64
		}{{affinity.Hash, 1}, {affinity.Pinned, 1}, {affinity.Hash, 2}, {affinity.Pinned, 1}} {
			if i == 2 {
				gone := pinstore.Op{Room: "r", If: pinstore.Pin{Incarnation: known.Incarnation}}
				if res := store.Store.Swap(t.Context(), gone)[0]; !res.Done {
					t.Fatalf("the pin stays: %+v", res)
				}
			}
			before := store.swaps.Load()
			a := f.resolve("a", "r", 2)
			trips := store.swaps.Load() - before
			if a.Source != c.source || trips != c.trips || (a.Epoch > known.Epoch) != (c.source == affinity.Hash) {
				t.Errorf("call %d: %+v after %d round trips, want %d and source %v; epoch %d before", i, a, trips, c.trips, c.source, known.Epoch)
			}
			known = a
		}
	})
}

// slow is a store that waits for the duration trip before each answer, and does not notify.
type slow struct {
	pinstore.Store
	trip atomic.Int64 // in nanoseconds
}

func (s *slow) Notify(func(string)) (stop func()) { return func() {} }

func (s *slow) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	select {
	case <-time.After(time.Duration(s.trip.Load())):
		return s.Store.Swap(ctx, ops...)
	case <-ctx.Done():
		results := make([]pinstore.Result, len(ops))
		for i := range results {
			results[i].Err = fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
		}
		return results
	}
}

// A caller that gives up before the budget is over does not count as a failure of the store. Other callers must still
// get the answer after one round trip, and the breaker must stay closed.
func TestImpatientCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		rooms := []string{"r-0", "r-1", "r-2", "r-3"}
		for _, room := range rooms {
			f.resolve("a", room, 2)
		}
		time.Sleep(time.Minute) // so that no pin is fresh
		const trip = 100 * time.Millisecond
		store.trip.Store(int64(trip))
		before := f.rooms["a"].Stats().StoreErrors
		for _, room := range rooms {
			impatient, cancel := context.WithTimeout(t.Context(), trip*4/5)
			go func() { _, _ = f.rooms["a"].Resolve(impatient, room, affinity.Demand{Size: 2}) }()
			synctest.Wait()
			began := time.Now()
			if a := f.resolve("a", room, 2); a.Source != affinity.Pinned || time.Since(began) != trip {
				t.Errorf("%s: %v after %v, want a pin after %v", room, a.Source, time.Since(began), trip)
			}
			cancel()
		}
		if s := f.rooms["a"].Stats(); s.Breaker != "closed" || s.StoreErrors != before {
			t.Errorf("the breaker is %s after %d errors of the store", s.Breaker, s.StoreErrors-before)
		}
	})
}

// A reservation ends when the load of its node must include the room. So a room that never got participants stops using
// up capacity.
func TestReservationsExpire(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		var rooms []string // rooms in a's partitions
		for _, room := range names(100) {
			if f.owner(room) == "a" {
				rooms = append(rooms, room)
			}
		}
		for i, want := range []affinity.Source{affinity.Hash, affinity.Override, affinity.Hash} {
			if i == 2 {
				time.Sleep(10 * time.Second)
			}
			size := []int{25, 16, 25}[i] // 600, 240 and 600 of 800 units
			if a := f.resolve("b", rooms[i], size); a.Source != want {
				t.Errorf("room %d: %+v, want %v", i, a, want)
			}
		}
	})
}

func TestHardCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{SoftCeiling: 50, HardCeiling: 80}, "a", "b")
		f.Agent("a").SetLoad(600)
		f.Agent("b").SetLoad(700)
		time.Sleep(5 * time.Second)
		if a := f.resolve("b", "r", 10); a.Node != "a" { // 90 units
			t.Errorf("above the soft ceiling it went to %s, not to the least loaded node", a.Node)
		}
		_, err := f.rooms["a"].Resolve(t.Context(), "huge", affinity.Demand{Size: 20})
		if !errors.Is(err, affinity.ErrNoCapacity) {
			t.Errorf("380 units more than any ceiling allows: %v", err)
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "huge"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("the refused room is pinned: %v", err)
		}
		if a := f.resolve("b", "r", 30); a.Node != "a" {
			t.Errorf("a room that is pinned is refused or moved: %+v", a)
		}
		if _, err := f.rooms["a"].Move(t.Context(), "r", "b"); err != nil {
			t.Errorf("90 units fit below b's hard ceiling of 800: %v", err)
		}
	})
}

// A burst of new rooms must spread over the nodes, although the reported loads include the rooms only after the next
// heartbeats.
func TestBurst(t *testing.T) {
	inFleet(t, "a b c d e", func(t *testing.T, f *fleet) {
		for i, id := range []string{"a", "b", "c", "d"} {
			f.Agent(id).SetLoad(int64(400 + 50*i))
		}
		time.Sleep(5 * time.Second)
		got := make(map[lease.NodeID]int64)
		for i, room := range names(100) {
			a := f.resolve(f.IDs()[i%5], room, 5) // 20 units: 2,000 in all; 2,000 of 4,000 are free
			got[a.Node] += 20
		}
		t.Logf("units by node: %v", got)
		for i, id := range []string{"a", "b", "c", "d"} {
			if carries := int64(400+50*i) + got[lease.NodeID(id)]; carries > capacity {
				t.Errorf("%s carries %d units of %d", id, carries, capacity)
			}
		}
		if got["e"] > 1000 {
			t.Errorf("e, the emptiest, got %d units of 2,000", got["e"])
		}
	})
}

// Claims that were not sent must not reserve capacity.
func TestRefusedClaimsReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{HardCeiling: 100}, "a", "b")
		store.fails.Store(true)
		for range 100 {
			f.resolve("a", "r", 10)
			time.Sleep(20 * time.Millisecond)
		}
		store.fails.Store(false)
		time.Sleep(2 * time.Second)
		e, err := f.rooms["a"].Explain(t.Context(), "other", affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Candidates {
			if c.Reserved != 0 {
				t.Errorf("%d units are reserved on %s", c.Reserved, c.Member.ID)
			}
		}
	})
}

func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a")
		before := store.swaps.Load()
		r := f.rooms["a"]
		for _, room := range []string{"", string(make([]byte, 10<<10)), "a\x00b", "a\nb", "{a", "a}", "*", "a*b", "\xff", "\u0085"} {
			_, e1 := r.Resolve(t.Context(), room, affinity.Demand{})
			_, e2 := r.Host(t.Context(), room, affinity.Demand{})
			_, e3 := r.Lookup(t.Context(), room)
			_, e4 := r.Explain(t.Context(), room, affinity.Demand{})
			_, e5 := r.Relays(t.Context(), room, affinity.Demand{}, 3)
			for i, err := range []error{e1, e2, e3, e4, e5, r.Release(t.Context(), room)} {
				if !errors.Is(err, affinity.ErrName) {
					t.Errorf("call %d with room %.20q: %v", i, room, err)
				}
			}
		}
		for _, size := range []int{-1, pinstore.MaxSize + 1, 1 << 62} {
			_, e1 := r.Resolve(t.Context(), "r", affinity.Demand{Size: size})
			_, e2 := r.Host(t.Context(), "r", affinity.Demand{Size: size})
			_, e3 := r.Explain(t.Context(), "r", affinity.Demand{Size: size})
			for _, err := range []error{e1, e2, e3} {
				if !errors.Is(err, affinity.ErrDemand) {
					t.Errorf("size %d: %v", size, err)
				}
			}
		}
		if n := store.swaps.Load() - before; n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// Five agents with 20 simultaneous joins each must fill the nodes exactly to the hard ceiling.
func TestHardCeilingOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, store: pinstore.NewMemory(), rooms: make(map[string]*affinity.Resolver)}
		f.cfg = affinity.Config{HardCeiling: 100, SoftCeiling: 80, Log: slog.New(slog.DiscardHandler)}
		f.Cluster = clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) { c.Capacity, c.Partitions = 40, 64 }})
		f.start("a", "b", "c", "d", "e")
		var wait sync.WaitGroup
		var mu sync.Mutex
		units, full := make(map[lease.NodeID]int), 0
		for id, r := range f.rooms {
			for i := range 20 {
				wait.Go(func() {
					a, err := r.Resolve(t.Context(), fmt.Sprint("room-", id, i), affinity.Demand{Units: 10})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, affinity.ErrNoCapacity):
						full++
					case err != nil || a.Source == affinity.Degraded:
						t.Errorf("%+v, %v", a, err)
					default:
						units[a.Node] += 10
					}
				})
			}
		}
		wait.Wait()
		for _, id := range f.IDs() {
			if n := units[lease.NodeID(id)]; n != 40 {
				t.Errorf("%s has rooms of %d units, with a ceiling of 40", id, n)
			}
		}
		if full != 80 {
			t.Errorf("%d of 100 rooms found no node, want 80", full)
		}
		if n := len(pins(t, f.store)); n != 20 {
			t.Errorf("%d rooms are pinned, want 20", n)
		}
	})
}

// While the store is away, StrictCeiling refuses new rooms, but known rooms are still found.
func TestStrictCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{HardCeiling: 90, StrictCeiling: true}, "a", "b")
		known := ""
		for _, room := range names(50) { // find a room that lives on b
			if f.resolve("a", room, 2).Node == "b" {
				known = room
				f.hostAt("b", room, 2)
				break
			}
		}
		store.fails.Store(true)
		for id, r := range f.rooms {
			if a, err := r.Resolve(t.Context(), known, affinity.Demand{Size: 2}); err != nil || a.Node != "b" {
				t.Errorf("%s finds the known room on %q: %v", id, a.Node, err)
			}
			if a, err := r.Resolve(t.Context(), "new", affinity.Demand{Size: 2}); !errors.Is(err, pinstore.ErrStore) {
				t.Errorf("%s places a new room on %q: %v", id, a.Node, err)
			}
		}
		if s := f.rooms["a"].Stats(); s.Unplaced != 1 {
			t.Errorf("%d joins were refused, want 1", s.Unplaced)
		}
		f.crash("b")
		time.Sleep(2 * time.Second)
		if a := f.resolve("a", known, 2); a.Source != affinity.Degraded || a.Node != "a" {
			t.Errorf("after a crash the known room is on %+v", a)
		}
		store.fails.Store(false)
		time.Sleep(10 * time.Second)
		if a := f.resolve("a", "new", 2); a.Source == affinity.Degraded {
			t.Errorf("when the store is back: %+v", a)
		}
	})
	if err := (affinity.Config{StrictCeiling: true}).Validate(); err == nil {
		t.Error("a strict ceiling without a ceiling is valid")
	}
}
