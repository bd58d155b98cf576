package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

const (
	ttl  = 6 * time.Second
	soon = 12 * time.Second // by then a crash has been noticed and repaired
)

// fleet is a cluster on virtual time with a shared store.
type fleet struct {
	*clustertest.Cluster
	t     *testing.T
	store affinity.Store
	cfg   affinity.Config
	rooms map[string]*affinity.Resolver
}

// capacity of every node of a fleet, in forwarded streams.
const capacity = 1000

func newFleet(t *testing.T, store affinity.Store, cfg affinity.Config, ids ...string) *fleet {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &fleet{t: t, store: store, cfg: cfg, rooms: make(map[string]*affinity.Resolver)}
	f.Cluster = clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) {
		c.Capacity, c.Partitions = capacity, 64
	}})
	f.start(ids...)
	return f
}

func (f *fleet) start(ids ...string) {
	f.t.Helper()
	f.Start(ids...)
	for _, id := range ids {
		f.resolver(id)
	}
	f.WaitAgreed(3 * time.Second)
	time.Sleep(5 * time.Second) // loads are reported
}

func (f *fleet) resolver(id string) {
	f.t.Helper()
	r, err := affinity.Start(f.Agent(id), f.store, f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.rooms[id] = r
	f.t.Cleanup(func() { _ = r.Close() })
	if !f.cfg.ReportLoad {
		f.Agent(id).SetLoad(0)
	}
}

// crash ends a node and its resolver as kill -9 does, without a farewell.
func (f *fleet) crash(id string) {
	f.rooms[id].Kill()
	delete(f.rooms, id)
	f.Crash(id)
}

func (f *fleet) resolve(id, room string, size int) affinity.Assignment {
	f.t.Helper()
	a, err := f.rooms[id].Resolve(f.t.Context(), room, affinity.Demand{Size: size})
	if err != nil {
		f.t.Fatalf("%s resolves %s: %v", id, room, err)
	}
	return a
}

// host resolves a room at one node and hosts it where that says.
func (f *fleet) host(at, room string, size int) *affinity.Hosting {
	f.t.Helper()
	a := f.resolve(at, room, size)
	h, err := f.rooms[string(a.Node)].Host(f.t.Context(), room, affinity.Demand{Size: size})
	if err != nil {
		f.t.Fatalf("%s hosts %s: %v", a.Node, room, err)
	}
	return h
}

// not returns the first node that is none of these.
func (f *fleet) not(ids ...string) string {
	f.t.Helper()
	for _, id := range f.IDs() {
		if !slices.Contains(ids, id) {
			return id
		}
	}
	f.t.Fatalf("no node but %v", ids)
	return ""
}

func names(n int) []string {
	rooms := make([]string, n)
	for i := range rooms {
		rooms[i] = fmt.Sprint("r-", i)
	}
	return rooms
}

func lost(h *affinity.Hosting) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func TestFirstJoins(t *testing.T) { // S0.1, S0.2, S0.4
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{}, "a", "b", "c", "d")
		for i := range 50 {
			room := fmt.Sprint("room-", i)
			answers := make([]affinity.Assignment, 40)
			var wait sync.WaitGroup
			for k := range answers {
				wait.Go(func() { answers[k] = f.resolve(f.IDs()[k%4], room, k%5) })
			}
			wait.Wait()
			for _, a := range answers[1:] {
				if a.Incarnation != answers[0].Incarnation || a.Epoch != answers[0].Epoch {
					t.Fatalf("%s: %+v and %+v", room, answers[0], a)
				}
			}
			owner, err := f.Agent("a").Place(room)
			if err != nil || answers[0].Node != owner.ID || answers[0].Member.ID != owner.ID {
				t.Fatalf("%s lives on %s, its partition's owner is %v (%v)", room, answers[0].Node, owner, err)
			}
		}
	})
}

func TestOverride(t *testing.T) { // S0.2, S0.3
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{SoftCeiling: 90}, "a", "b", "c")
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

func (f *fleet) owner(room string) lease.NodeID {
	f.t.Helper()
	m, err := f.Agent(f.IDs()[0]).Place(room)
	if err != nil {
		f.t.Fatal(err)
	}
	return m.ID
}

// A node without a known load or a capacity, or one that drains, is no target of an
// override.
func TestNoOverrideTarget(t *testing.T) { // S0.2
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{}, "a", "b")
		f.StartWith("mute") // no resolver, so no load
		f.StartWith("vague", clustertest.WithConfig(func(c *cluster.Config) { c.Capacity = 0 }))
		f.Agent("vague").SetLoad(0)
		f.StartWith("leaving", clustertest.WithConfig(func(c *cluster.Config) { c.StartDraining = true }))
		f.Agent("leaving").SetLoad(0)
		f.Agent("a").SetLoad(799)
		time.Sleep(10 * time.Second)
		targets := make(map[lease.NodeID]bool)
		for _, room := range names(300) {
			if a := f.resolve("a", room, 2); a.Source == affinity.Override {
				targets[a.Node] = true
				if err := f.rooms["a"].Release(t.Context(), room); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !maps.Equal(targets, map[lease.NodeID]bool{"b": true}) {
			t.Errorf("overrides went to %v, want b alone", targets)
		}
	})
}

func TestHardCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{SoftCeiling: 50, HardCeiling: 80}, "a", "b")
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

// A burst of rooms spreads over the nodes, although their loads show it only after the
// next heartbeats.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{}, "a", "b", "c", "d", "e")
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

func TestHost(t *testing.T) { // S0.1
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b", "c")
		a := f.resolve("a", "r", 10)
		for _, id := range f.IDs() {
			h, err := f.rooms[id].Host(t.Context(), "r", affinity.Demand{Size: 10})
			if id == string(a.Node) {
				if err != nil || h.Epoch() != a.Epoch || lost(h) {
					t.Fatalf("%s cannot host its own room: %v", id, err)
				}
				again, err := f.rooms[id].Host(t.Context(), "r", affinity.Demand{Size: 11})
				if again != h || err != nil {
					t.Errorf("hosting twice: %p and %p, %v", h, again, err)
				}
				continue
			}
			var elsewhere *affinity.NotOwnerError
			if !errors.As(err, &elsewhere) || elsewhere.Owner.Incarnation != a.Incarnation || !errors.Is(err, affinity.ErrNotOwner) || errors.Is(err, affinity.ErrSplit) {
				t.Errorf("%s hosts a room of %s: %v", id, a.Node, err)
			}
		}
		time.Sleep(10 * time.Second)
		for _, m := range f.Agent("a").Members() {
			if want := map[bool]int64{true: affinity.FullMesh(11)}[m.ID == a.Node]; m.Load != want {
				t.Errorf("%s reports %d units, want %d", m.ID, m.Load, want)
			}
		}
		h, _ := f.rooms[string(a.Node)].Host(t.Context(), "r", affinity.Demand{})
		if err := h.Release(t.Context()); err != nil || !lost(h) || !errors.Is(h.Err(), affinity.ErrReleased) {
			t.Errorf("released: %v, lost %v, %v", err, lost(h), h.Err())
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("its pin: %v", err)
		}
	})
}

// A long meeting keeps its pin; the pin of an abandoned room expires.
func TestPinTTL(t *testing.T) { // S0.5
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{PinTTL: 12 * time.Minute}, "a", "b")
		meeting := f.host("a", "meeting", 3)
		abandoned := f.resolve("a", "abandoned", 3)
		lapsing := f.host("b", "lapsing", 3)
		lapsing.LapseAfter(12 * time.Minute)
		time.Sleep(11 * time.Minute)
		if a := f.resolve("b", "abandoned", 3); a.Epoch != abandoned.Epoch {
			t.Errorf("pinned again within the TTL: %+v", a)
		}
		time.Sleep(30 * time.Minute)
		if a, err := f.rooms["b"].Lookup(t.Context(), "meeting"); err != nil || a.Epoch != meeting.Epoch() || lost(meeting) {
			t.Errorf("the meeting after 40 minutes: %+v, %v, lost %v", a, err, lost(meeting))
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "abandoned"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("the abandoned room is pinned still: %v", err)
		}
		if !errors.Is(lapsing.Err(), affinity.ErrLapsed) {
			t.Errorf("the untouched hosting: %v", lapsing.Err())
		}
	})
}

func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{}, "a", "b", "c")
		h := f.host("a", "r", 3)
		from := f.resolve("a", "r", 3).Node
		to := f.not(string(from))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var published []affinity.Moved
		var wait sync.WaitGroup
		moves := f.rooms[string(from)].Moves(ctx)
		wait.Go(func() {
			for b := range moves {
				published = append(published, b.Moved...)
			}
		})
		a, err := f.rooms["c"].Move(t.Context(), "r", lease.NodeID(to))
		if err != nil || a.Node != lease.NodeID(to) {
			t.Fatalf("moved to %s: %+v, %v", to, a, err)
		}
		synctest.Wait()
		cancel()
		wait.Wait()
		var elsewhere *affinity.NotOwnerError
		if !lost(h) || !errors.As(h.Err(), &elsewhere) || elsewhere.Owner.Node != lease.NodeID(to) || elsewhere.Split {
			t.Errorf("the old host: lost %v, %v", lost(h), h.Err())
		}
		if len(published) != 1 || published[0].From.Node != from || published[0].To.Node != lease.NodeID(to) || published[0].Epoch != a.Epoch {
			t.Errorf("the old host received %+v", published)
		}
		if got := f.resolve(string(from), "r", 3); got.Node != lease.NodeID(to) || got.Epoch <= h.Epoch() {
			t.Errorf("then it lives at %+v", got)
		}
		for what, c := range map[string]struct {
			room, to string
			want     error
		}{
			"no pin":      {"other", to, affinity.ErrNoPin},
			"nobody":      {"r", "nobody", affinity.ErrNotLive},
			"a bad name":  {"r*", to, affinity.ErrName},
			"same place":  {"r", to, nil},
			"and back":    {"r", string(from), nil},
			"empty name":  {"", to, affinity.ErrName},
			"no such one": {"r", "", affinity.ErrNotLive},
		} {
			if _, err := f.rooms["b"].Move(t.Context(), c.room, lease.NodeID(c.to)); !errors.Is(err, c.want) && (what != "same place" || err != nil) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
	})
}

func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: affinity.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a")
		before := store.swaps.Load()
		r := f.rooms["a"]
		for _, room := range []string{"", string(make([]byte, 10<<10)), "a\x00b", "a\nb", "{a", "a}", "*", "a*b", "\xff", "\u0085"} {
			_, e1 := r.Resolve(t.Context(), room, affinity.Demand{})
			_, e2 := r.Host(t.Context(), room, affinity.Demand{})
			_, e3 := r.Lookup(t.Context(), room)
			_, e4 := r.Explain(t.Context(), room, affinity.Demand{})
			_, e5 := r.Edges(t.Context(), room, affinity.Demand{}, 3)
			for i, err := range []error{e1, e2, e3, e4, e5, r.Release(t.Context(), room)} {
				if !errors.Is(err, affinity.ErrName) {
					t.Errorf("call %d with room %.20q: %v", i, room, err)
				}
			}
		}
		for _, size := range []int{-1, affinity.MaxSize + 1, 1 << 62} {
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
