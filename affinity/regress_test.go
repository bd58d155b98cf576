package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
)

// A room that is hosted shortly before its pin expires keeps the pin, although its host
// has not written it yet.
func TestHostedLate(t *testing.T) { // S0.5
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{PinTTL: 12 * time.Minute}, "a", "b")
		was := f.resolve("a", "r", 2)
		time.Sleep(11 * time.Minute)
		h := f.host("b", "r", 2)
		time.Sleep(30 * time.Minute)
		if is, err := f.rooms["b"].Lookup(t.Context(), "r"); err != nil || lost(h) || is.Epoch != was.Epoch || h.Epoch() != was.Epoch {
			t.Errorf("lost: %v; it was at epoch %d, is at %+v, %v", h.Err(), was.Epoch, is, err)
		}
	})
}

// hooked calls before for the first release, and does not notify: a server does not
// notify a connection of its own changes.
type hooked struct {
	affinity.Store
	before atomic.Pointer[func()]
}

func (s *hooked) Notify(func(string)) {}

func (s *hooked) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	if before := s.before.Load(); before != nil && ops[0].If != (affinity.Pin{}) && ops[0].Set == (affinity.Pin{}) {
		s.before.Store(nil)
		(*before)()
	}
	return s.Store.Swap(ctx, ops...)
}

// A participant comes back between the end of a hosting and the deletion of its pin.
func TestHostDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: affinity.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		h := f.host("a", "r", 2)
		home := f.rooms[string(f.resolve("a", "r", 2).Node)]
		var again *affinity.Hosting
		host := func() {
			var err error
			if again, err = home.Host(t.Context(), "r", affinity.Demand{Size: 1}); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond) // the keeper reads the pin before it is deleted
		}
		store.before.Store(&host)
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		pin := pins(t, store)["r"]
		if again == h || lost(again) || pin.Epoch == 0 || pin.Epoch != again.Epoch() {
			t.Errorf("hosted again: the pin is %+v, the hosting has epoch %d, %v", pin, again.Epoch(), again.Err())
		}
	})
}

// Any node can end a room.
func TestReleaseElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, affinity.NewMemory(), affinity.Config{}, "a", "b", "c")
		h := f.host("a", "r", 2)
		home := string(f.resolve("a", "r", 2).Node)
		var published atomic.Int64
		for _, r := range f.rooms {
			moves := r.Moves(t.Context())
			go func() {
				for range moves {
					published.Add(1)
				}
			}()
		}
		if err := f.rooms[f.not(home)].Release(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !lost(h) || !errors.Is(h.Err(), affinity.ErrReleased) {
			t.Errorf("its host: lost %v, %v", lost(h), h.Err())
		}
		for _, id := range f.IDs() {
			if _, err := f.rooms[id].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
				t.Errorf("%s finds a pin: %v", id, err)
			}
			if list, err := f.rooms[id].Rooms(t.Context(), "", 10); err != nil || len(list) != 0 {
				t.Errorf("%s lists %v, %v", id, list, err)
			}
			if err := f.rooms[id].Release(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
				t.Errorf("%s releases it again: %v", id, err)
			}
		}
		if a := f.resolve("b", "r", 2); a.Source != affinity.Hash || a.Epoch <= h.Epoch() {
			t.Errorf("then it begins anew at %+v", a)
		}
		time.Sleep(time.Minute)
		if n := published.Load(); n != 0 {
			t.Errorf("%d moves were published; the room ended and began", n)
		}
	})
}

// Clients resolve their rooms repeatedly when a node dies. Subscribers receive each
// move once nevertheless.
func TestMovesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := affinity.NewMemory()
		f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
		var rooms []string
		for _, room := range names(200) {
			f.resolve("b", room, 2)
			if f.resolve("a", room, 2).Node == "c" {
				rooms = append(rooms, room)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var wait sync.WaitGroup
		published := map[string]map[string]int{"a": {}, "b": {}}
		for id := range published {
			moves := f.rooms[id].Moves(ctx)
			wait.Go(func() {
				for b := range moves {
					mu.Lock()
					for _, m := range b.Moved {
						published[id][m.Room]++
					}
					mu.Unlock()
				}
			})
		}
		f.crash("c")
		for range 300 {
			for _, room := range rooms {
				f.resolve("a", room, 2)
				if _, err := f.rooms["b"].Lookup(t.Context(), room); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		wait.Wait()
		for id := range published {
			for _, room := range rooms {
				if published[id][room] != 1 {
					t.Errorf("%s received %d moves of %s", id, published[id][room], room)
				}
			}
		}
		if len(rooms) == 0 {
			t.Error("no room lived on c")
		}
	})
}

// A node restarts just after its lease expired, while its heartbeat in the store has
// not: the earlier incarnation is dead.
func TestRestartBeforeHeartbeatExpires(t *testing.T) { // S0.8
	for i := range time.Duration(8) {
		synctest.Test(t, func(t *testing.T) {
			store := affinity.NewMemory()
			f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
			for _, room := range names(100) {
				f.resolve("a", room, 2)
				if _, err := f.rooms["a"].Move(t.Context(), room, "c"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5*time.Second + i*170*time.Millisecond)
			life := pins(t, store)["r-0"].Incarnation
			f.crash("c")
			for len(f.Agent("a").Members()) > 2 || len(f.Agent("b").Members()) > 2 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(300 * time.Millisecond)
			f.start("c")
			time.Sleep(time.Minute)
			n := 0
			for _, p := range pins(t, store) {
				if p.Incarnation == life {
					n++
				}
			}
			if n > 0 {
				t.Fatalf("%d rooms are pinned to the former life of c", n)
			}
		})
	}
}

// stuck is a store that hangs for one node and does not notify it.
type stuck struct {
	affinity.Store
	on atomic.Bool
}

func (s *stuck) Notify(func(string)) {}

func (s *stuck) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	if s.on.Load() {
		<-ctx.Done()
		results := make([]affinity.Result, len(ops))
		for i := range results {
			results[i].Err = fmt.Errorf("%w: %w", affinity.ErrStore, ctx.Err())
		}
		return results
	}
	return s.Store.Swap(ctx, ops...)
}

// A node is live again after a pause, and its keeper waits for the store: Host must not
// return a hosting from before the pause.
func TestFencedHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := affinity.NewMemory()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		slow := &stuck{Store: store}
		f.store = slow
		f.start("c")
		a := f.resolve("a", "r", 2)
		if a.Node != "c" {
			if _, err := f.rooms["a"].Move(t.Context(), "r", "c"); err != nil {
				t.Fatal(err)
			}
		}
		h, err := f.rooms["c"].Host(t.Context(), "r", affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		f.resolve("c", "known", 2)
		f.Pause("c")
		time.Sleep(2 * soon)
		slow.on.Store(true)
		f.rooms["c"].Changed("known") // work for its keeper
		time.Sleep(10 * time.Millisecond)
		f.Resume("c")
		for !f.Agent("c").Live() {
			time.Sleep(time.Millisecond)
		}
		if got, err := f.rooms["c"].Host(t.Context(), "r", affinity.Demand{Size: 2}); got == h || !lost(h) {
			t.Errorf("it returns a hosting that it lost: %v, lost %v", err, lost(h))
		}
	})
}

// Claims that were not sent reserve nothing.
func TestRefusedClaimsReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: affinity.NewMemory()}
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

// empty counts no participants: those of a crashed node have expired.
type empty struct{}

func (empty) Counts(_ context.Context, rooms []string) ([]int, error) {
	return make([]int, len(rooms)), nil
}

func TestSizeOfTheGone(t *testing.T) { // S1.7
	synctest.Test(t, func(t *testing.T) {
		store := affinity.NewMemory()
		f := newFleet(t, store, affinity.Config{Counter: empty{}}, "a", "b", "c")
		for _, room := range names(30) {
			f.resolve("a", room, 8)
		}
		f.crash("c")
		time.Sleep(2 * soon)
		for room, pin := range pins(t, store) {
			if pin.Size != 8 || pin.Node == "c" {
				t.Errorf("%s is pinned to %+v, it had 8 participants", room, pin)
			}
		}
	})
}

// The pin of a room that has grown gets the new size without waiting for the refresh.
func TestGrowthIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := affinity.NewMemory()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		h := f.host("a", "r", 2)
		for size := 3; size <= 40; size++ {
			h.Touch(size)
			time.Sleep(3 * time.Second)
		}
		if pin := pins(t, store)["r"]; pin.Size < 20 || pin.Epoch != h.Epoch() {
			t.Errorf("40 participants, its pin says %d", pin.Size)
		}
	})
}
