package evacuate_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestMain(m *testing.M) { leak.Main(m) }

// fleet is a cluster in virtual time whose nodes host rooms.
type fleet struct {
	*clustertest.Cluster
	t        *testing.T
	store    *gappy
	rooms    map[string]*affinity.Resolver
	hostings map[string][]*affinity.Hosting // by node
	moves    map[string]int                 // moves of each room that node c has learned of
	order    []string
}

// inFleet runs a test with the nodes a, b and c. The nodes host n rooms with 1 to 9 participants each.
func inFleet(t *testing.T, n int, cfg affinity.Config, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Log = slog.New(slog.DiscardHandler)
		store := &gappy{Store: pinstore.NewMemory()}
		f := &fleet{
			Cluster:  clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) { c.Capacity, c.Partitions = 100_000, 64 }}),
			t:        t,
			store:    store,
			rooms:    make(map[string]*affinity.Resolver),
			hostings: make(map[string][]*affinity.Hosting),
			moves:    make(map[string]int),
		}
		f.Start("a", "b", "c")
		for _, id := range []string{"a", "b", "c"} {
			r, err := affinity.Start(f.Agent(id), store, cfg)
			if err != nil {
				t.Fatal(err)
			}
			f.rooms[id] = r
			t.Cleanup(func() { _ = r.Close() })
			f.Agent(id).SetLoad(0)
		}
		f.WaitAgreed(3 * time.Second)
		time.Sleep(5 * time.Second)
		batches := f.rooms["c"].Moves(t.Context())
		go func() {
			for b := range batches {
				for _, m := range b.Moved {
					f.moves[m.Room]++
					f.order = append(f.order, m.Room)
				}
			}
		}()
		for i := range n {
			room, d := fmt.Sprintf("r-%d-%d", 1+i%9, i), affinity.Demand{Size: 1 + i%9}
			at, err := f.rooms["c"].Resolve(t.Context(), room, d)
			if err != nil {
				t.Fatal(err)
			}
			h, err := f.rooms[string(at.Node)].Host(t.Context(), room, d)
			if err != nil {
				t.Fatal(err)
			}
			f.hostings[string(at.Node)] = append(f.hostings[string(at.Node)], h)
		}
		test(t, f)
	})
}

func (f *fleet) drain() {
	f.t.Helper()
	if err := f.Agent("a").Drain(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) pinned() int {
	f.t.Helper()
	entries, err := f.rooms["c"].Rooms(f.t.Context(), f.Agent("a").Snapshot().Self.ID, 1<<20)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(entries)
}

// movedOnce fails the test unless each room of node a moved exactly once and no other room moved.
func (f *fleet) movedOnce() {
	f.t.Helper()
	synctest.Wait()
	for _, h := range f.hostings["a"] {
		if f.moves[h.Room()] != 1 {
			f.t.Errorf("%s moved %d times", h.Room(), f.moves[h.Room()])
		}
	}
	if len(f.moves) != len(f.hostings["a"]) {
		f.t.Errorf("%d rooms moved, of the node's %d", len(f.moves), len(f.hostings["a"]))
	}
}

func TestRun(t *testing.T) {
	inFleet(t, 900, affinity.Config{}, func(t *testing.T, f *fleet) {
		f.drain()
		hosted := len(f.hostings["a"])
		var last affinity.Evacuation
		began := time.Now()
		err := evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: 50}, func(p affinity.Evacuation) {
			if p.Left != f.pinned() || p.Left+p.Moved != hosted {
				t.Errorf("%+v, while the store has %d rooms of %d", p, f.pinned(), hosted)
			}
			last = p
		})
		if over := f.rooms["a"].Stats().Evacuation; !over.Over || over.Moved != hosted || over.Left != 0 {
			t.Errorf("at the end the stats say %+v", over)
		}
		if want := (affinity.Evacuation{Moved: hosted}); err != nil || last != want || hosted < 100 {
			t.Errorf("%v, %+v; %d rooms were hosted", err, last, hosted)
		}
		if took, want := time.Since(began), time.Duration(hosted)*time.Second/50; took < want || took > want+time.Second {
			t.Errorf("took %v at 50 a second, want %v", took, want)
		}
		f.movedOnce()
		if first, end := f.order[0], f.order[hosted-1]; !strings.HasPrefix(first, "r-1-") || !strings.HasPrefix(end, "r-9-") {
			t.Errorf("the first to move was %s, the last one %s", first, end)
		}
		for _, h := range f.hostings["a"] {
			elsewhere, ok := errors.AsType[*affinity.NotOwnerError](h.Err())
			if !ok || elsewhere.Owner.Member == nil || elsewhere.Owner.Node == "a" {
				t.Fatalf("%s is lost because of %v", h.Room(), h.Err())
			}
		}
	})
}

// Rooms move at the planned rate, although each move takes two round trips of 9 ms. Rooms that end in the meantime do
// not move.
func TestSlowStore(t *testing.T) {
	inFleet(t, 900, affinity.Config{}, func(t *testing.T, f *fleet) {
		f.drain()
		const trip, rate, abreast = 9 * time.Millisecond, 200, 4
		f.store.trip.Store(int64(trip))
		hosted := len(f.hostings["a"])
		ending := f.hostings["a"][hosted-5:]
		var last affinity.Evacuation
		began := time.Now()
		err := evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: rate}, func(p affinity.Evacuation) {
			if is := f.pinned(); is > p.Left || is < p.Left-abreast-len(ending) || p.Left+p.Moved+p.Ended != hosted {
				t.Errorf("%+v, while the store has %d rooms of %d", p, is, hosted)
			}
			if p.Moved == 100 {
				for _, h := range ending {
					go func() { _ = h.Release(t.Context()) }()
				}
			}
			last = p
		})
		took, want := time.Since(began), time.Duration(hosted)*time.Second/rate
		if err != nil || took < want || took > want+time.Second {
			t.Errorf("%v after %v at %d a second, want %v", err, took, rate, want)
		}
		if last.Left != 0 || last.Ended == 0 || last.Moved+last.Ended != hosted || hosted < 250 {
			t.Errorf("%+v of %d rooms", last, hosted)
		}
		time.Sleep(time.Second) // so that c has read the latest pins
		synctest.Wait()
		once := 0
		for _, h := range f.hostings["a"] {
			if n := f.moves[h.Room()]; n == 1 {
				once++
			} else if n > 1 || !slices.Contains(ending, h) {
				t.Errorf("%s moved %d times", h.Room(), n)
			}
		}
		if once != last.Moved {
			t.Errorf("%d rooms moved once, and %d by the count", once, last.Moved)
		}
	})
}

// At first, the store is too far away for the planned rate. No move fails, and the node's circuit breaker stays closed.
// When the round trip becomes short, the remaining rooms do not move all at once.
func TestFarStore(t *testing.T) {
	inFleet(t, 2700, affinity.Config{}, func(t *testing.T, f *fleet) {
		f.drain()
		const rate, burst, abreast = 200, 20, 4 // burst is the number of moves in 100 ms
		f.store.trip.Store(int64(120 * time.Millisecond))
		time.AfterFunc(4*time.Second, func() { f.store.trip.Store(int64(time.Millisecond)) })
		var moved []time.Time
		err := evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: rate}, func(p affinity.Evacuation) {
			moved = append(moved, time.Now())
			if s := f.rooms["a"].Stats(); p.Failed > 0 || s.Breaker != "closed" {
				t.Errorf("%+v, the breaker is %s", p, s.Breaker)
			}
		})
		if err != nil || len(moved) < 800 {
			t.Fatalf("%d rooms moved, %v", len(moved), err)
		}
		for i, at := range moved {
			n, _ := slices.BinarySearchFunc(moved[i:], at.Add(time.Second), time.Time.Compare)
			if n > rate+burst+abreast+1 {
				t.Fatalf("%d rooms moved within a second", n)
			}
		}
	})
}

// The node dies in the middle of an evacuation. The other nodes fail over the remaining rooms, and no room moves twice.
func TestDeathHalfWay(t *testing.T) {
	rooms := 15_000 // about 5,000 of them on a
	if testing.Short() {
		rooms = 900
	}
	inFleet(t, rooms, affinity.Config{}, func(t *testing.T, f *fleet) {
		f.drain()
		const abreast = 4
		f.store.trip.Store(int64(4 * time.Millisecond)) // so that several moves run at the same time
		ctx, cancel := context.WithCancel(t.Context())
		hosted := len(f.hostings["a"])
		half := hosted / 2
		var last affinity.Evacuation
		err := evacuate.Run(ctx, f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: 200}, func(p affinity.Evacuation) {
			last = p
			if ctx.Err() != nil {
				return
			}
			if p.Moved%100 == 0 {
				if is := f.pinned(); is > p.Left || is < p.Left-abreast || p.Left+p.Moved != hosted {
					t.Errorf("%+v, while the store has %d rooms of %d", p, is, hosted)
				}
			}
			if p.Moved >= half {
				go f.Crash("a")
				cancel()
			}
		})
		t.Log(hosted, "rooms")
		if !errors.Is(err, context.Canceled) || last.Moved < half || !strings.Contains(err.Error(), fmt.Sprint(last.Left, " rooms are left")) {
			t.Errorf("%v after %+v", err, last)
		}
		_ = f.rooms["a"].Close()
		time.Sleep(12 * time.Second)
		f.movedOnce()
	})
}

func TestDeadline(t *testing.T) {
	inFleet(t, 300, affinity.Config{}, func(t *testing.T, f *fleet) {
		f.drain()
		began := time.Now()
		const deadline = 20 * time.Second
		err := evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: 1, Deadline: deadline}, nil)
		if took := time.Since(began); err != nil || took > deadline || took < deadline/2 {
			t.Errorf("%v after %v", err, took)
		}
		f.movedOnce()
	})
}

// If no node has capacity for the rooms, the rooms stay and Run retries them. The error gives the reason. Once the
// nodes have capacity, the rooms move.
func TestNoCapacity(t *testing.T) {
	inFleet(t, 300, affinity.Config{HardCeiling: 90}, func(t *testing.T, f *fleet) {
		f.drain()
		full := func(load int64) {
			f.Agent("b").SetLoad(load)
			f.Agent("c").SetLoad(load)
			time.Sleep(12 * time.Second) // until the reservations have expired
		}
		full(100_000)
		var last affinity.Evacuation
		report := func(p affinity.Evacuation) { last = p }
		run := func() error {
			return evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: 100, Deadline: 20 * time.Second}, report)
		}
		hosted := len(f.hostings["a"])
		err := run()
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), affinity.ErrNoCapacity.Error()) || last.Left != hosted ||
			last.Failed > hosted {
			t.Errorf("%v, %+v of %d rooms", err, last, hosted)
		}
		full(0)
		if err := run(); err != nil || last.Moved != hosted || last.Failed != 0 {
			t.Errorf("with capacity: %v, %+v of %d rooms", err, last, hosted)
		}
		f.movedOnce()
	})
}

// While the store lists only some of the node's rooms, Run does not report that the node is empty.
func TestStoreWithGaps(t *testing.T) {
	for name, gaps := range map[string]struct {
		hide    bool
		problem error
	}{
		"pins are lost":        {hide: true},
		"a key cannot be read": {problem: errors.New("foreign value")},
		"both":                 {true, errors.New("down")},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 300, affinity.Config{}, func(t *testing.T, f *fleet) {
				f.drain()
				f.store.set(gaps.hide, gaps.problem)
				hosted := len(f.hostings["a"])
				var last affinity.Evacuation
				run := func() error {
					plan := evacuate.Plan{Rate: 1000, Deadline: 10 * time.Second}
					return evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], plan, func(p affinity.Evacuation) { last = p })
				}
				err := run()
				if !errors.Is(err, context.DeadlineExceeded) ||
					(gaps.hide && (last.Left != hosted || last.Moved > 0)) || (!gaps.hide && last.Moved != hosted) {
					t.Errorf("with gaps: %v, %+v of %d rooms", err, last, hosted)
				}
				if gaps.problem != nil && !strings.Contains(err.Error(), gaps.problem.Error()) {
					t.Errorf("%q does not say why", err)
				}
				f.store.set(false, nil)
				if err := run(); err != nil || last.Left != 0 {
					t.Errorf("without gaps: %v, %+v", err, last)
				}
				f.movedOnce()
			})
		})
	}
}

// gappy is a store with three possible defects: the index hides the rooms of node a, the index returns an error, or
// Swap takes a long round trip.
type gappy struct {
	pinstore.Store
	trip atomic.Int64 // round trip of Swap in nanoseconds

	mu      sync.Mutex
	hide    bool
	problem error
}

func (s *gappy) set(hide bool, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide, s.problem = hide, problem
}

func (s *gappy) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	half := time.Duration(s.trip.Load()) / 2
	time.Sleep(half)
	results := s.Store.Swap(ctx, ops...)
	time.Sleep(half)
	return results
}

func (s *gappy) Index(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	found, err := s.Store.Index(ctx, partitions, want, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hide {
		found = slices.DeleteFunc(found, func(e pinstore.Entry) bool { return e.Pin.Node == "a" })
	}
	return found, cmp.Or(err, s.problem)
}

func TestNotDraining(t *testing.T) {
	inFleet(t, 300, affinity.Config{}, func(t *testing.T, f *fleet) {
		run := func(report func(affinity.Evacuation)) error {
			return evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{}, report)
		}
		if err := run(nil); !errors.Is(err, evacuate.ErrNotDraining) {
			t.Errorf("an active node: %v", err)
		}
		f.drain()
		moved := 0
		err := run(func(p affinity.Evacuation) {
			if moved = p.Moved; moved == 3 {
				_ = f.Agent("a").Undrain(t.Context())
			}
		})
		if !errors.Is(err, evacuate.ErrNotDraining) || moved != 3 {
			t.Errorf("active again after 3 rooms: %v after %d", err, moved)
		}
		if err := evacuate.Run(t.Context(), f.Agent("a"), f.rooms["a"], evacuate.Plan{Rate: -1}, nil); err == nil {
			t.Error("a negative rate is taken")
		}
	})
}
