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

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func TestMove(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 3)
		from := f.resolve("a", "r", 3).Node
		to := f.not(string(from))
		moves := f.published(string(from))
		a, err := f.rooms["c"].Move(t.Context(), "r", lease.NodeID(to))
		if err != nil || a.Node != lease.NodeID(to) {
			t.Fatalf("moved to %s: %+v, %v", to, a, err)
		}
		synctest.Wait()
		published := moves.moves()
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
			_, err := f.rooms["b"].Move(t.Context(), c.room, lease.NodeID(c.to))
			if !errors.Is(err, c.want) && (what != "same place" || err != nil) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
	})
}

// However many callers call MoveFrom for a room, on any nodes, the room moves only once, and every caller gets its new
// node.
func TestMoveFrom(t *testing.T) {
	inFleet(t, "a b c d", func(t *testing.T, f *fleet) {
		moves := f.published("a")
		before := make(map[string]affinity.Assignment)
		for _, room := range names(100) {
			before[room] = f.resolve("a", room, 3)
		}
		var mu sync.Mutex
		after := make(map[string]map[lease.Incarnation]int)
		for _, room := range names(100) {
			after[room] = make(map[lease.Incarnation]int)
		}
		var callers sync.WaitGroup
		for _, room := range names(100) {
			for i := range 8 {
				callers.Go(func() {
					a, err := f.rooms[string("abcd"[i%4])].MoveFrom(t.Context(), room, before[room].Incarnation, before[room].Epoch)
					if err != nil {
						t.Errorf("%s: %v", room, err)
					}
					mu.Lock()
					defer mu.Unlock()
					after[room][a.Incarnation]++
				})
			}
		}
		callers.Wait()
		synctest.Wait()
		for room, answers := range after {
			home := f.resolve("b", room, 3)
			if home.Node == before[room].Node || answers[home.Incarnation] != 8 {
				t.Errorf("%s of %s lives on %s; the callers were told %v", room, before[room].Node, home.Node, answers)
			}
		}
		moves.once(t, 100)
		a, err := f.rooms["c"].MoveFrom(t.Context(), "r-0", before["r-0"].Incarnation, before["r-0"].Epoch)
		if err != nil || a.Node != f.resolve("b", "r-0", 3).Node {
			t.Errorf("a late caller: %+v, %v", a, err)
		}
		if _, err := f.rooms["c"].MoveFrom(t.Context(), "none", before["r-0"].Incarnation, 0); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("a room without a pin: %v", err)
		}
	})
}

// When a node dies, clients resolve its rooms repeatedly. Subscribers must still receive each move only once.
func TestMovesArePublishedOnce(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		var rooms []string
		for _, room := range names(60) {
			f.resolve("b", room, 2)
			if f.resolve("a", room, 2).Node == "c" {
				rooms = append(rooms, room)
			}
		}
		feeds := map[string]*published{"a": f.published("a"), "b": f.published("b")}
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
		synctest.Wait()
		for id, batches := range feeds {
			times := make(map[string]int)
			for _, m := range batches.moves() {
				times[m.Room]++
			}
			for _, room := range rooms {
				if times[room] != 1 {
					t.Errorf("%s received %d moves of %s", id, times[room], room)
				}
			}
		}
		if len(rooms) == 0 {
			t.Error("no room lived on c")
		}
	})
}

// If the store loses its data, moves may have been missed, so subscribers must be told to resolve all their rooms
// again.
func TestMovesResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReplaced()
		f := newFleet(t, store, affinity.Config{}, "a")
		batches := f.published("a")
		store.empty()
		synctest.Wait()
		if got := *batches; len(got) != 1 || !got[0].Resync || len(got[0].Moved) != 0 {
			t.Errorf("received %+v", got)
		}
	})
}

// A node that moves its own room away loses the room immediately, even if the store sends no notification.
func TestMoveFromHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &faulty{Store: pinstore.NewMemory(), mute: true}, affinity.Config{}, "a", "b")
		h := f.host("a", "r", 2)
		home := string(f.resolve("a", "r", 2).Node)
		synctest.Wait() // the keeper has read the new hosting's pin, so it does not notice the move first
		a, err := f.rooms[home].Move(t.Context(), "r", lease.NodeID(f.not(home)))
		var elsewhere *affinity.NotOwnerError
		if err != nil || !lost(h) || !errors.As(h.Err(), &elsewhere) || elsewhere.Owner != a {
			t.Errorf("moved to %+v, %v; lost %v, %v", a, err, lost(h), h.Err())
		}
	})
}

// If the store does not answer a move in time, the move may still happen. Then the node that called Move publishes the
// move, even without a notification from the store. If the room was hosted on that node, the node has lost the room.
func TestMoveWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateMoves{Store: &faulty{Store: pinstore.NewMemory(), mute: true}}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		for room, by := range map[string]func(home string) string{
			"its own":   func(home string) string { return home },
			"another's": func(home string) string { return f.not(home) },
		} {
			h := f.host("a", room, 2)
			home := string(f.resolve("b", room, 2).Node)
			if home != "a" {
				f.resolve("a", room, 2)
			}
			mover := by(home)
			moves := f.published(mover)
			time.Sleep(soon)
			store.late.Store(true)
			_, err := f.rooms[mover].Move(t.Context(), room, lease.NodeID(f.not(home)))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if !errors.Is(err, pinstore.ErrStore) || pins(t, store)[room].Node == lease.NodeID(home) {
				t.Fatalf("%s: %v, and the pin is %v", room, err, pins(t, store)[room])
			}
			if mover == home && (!lost(h) || !errors.Is(h.Err(), affinity.ErrNotOwner)) {
				t.Errorf("%s: it is hosted on: %v", room, h.Err())
			}
			if all := moves.moves(); len(all) != 1 || all[0].Room != room {
				t.Errorf("%s: %+v is published", room, all)
			}
		}
	})
}

// lateMoves is a store that performs one replacement of a pin after the caller has given up.
type lateMoves struct {
	pinstore.Store
	late atomic.Bool
}

func (s *lateMoves) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if op := ops[0]; op.If == (pinstore.Pin{}) || op.Set == (pinstore.Pin{}) || !s.late.CompareAndSwap(true, false) {
		return s.Store.Swap(ctx, ops...)
	}
	<-ctx.Done()
	time.AfterFunc(time.Second, func() { s.Store.Swap(context.Background(), ops...) })
	return []pinstore.Result{{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())}}
}

// A relay moves away from the node of its room and from the nodes of other relays. It moves only once, no matter which
// nodes ask, and stays if no other node can host it.
func TestResolveApart(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		home := f.host("a", "room", 3)
		at := f.resolve("a", "room", 3).Node
		apart := func(id, relay string, others ...string) affinity.Assignment {
			t.Helper()
			a, err := f.rooms[id].ResolveApart(t.Context(), relay, affinity.Demand{Publishers: 1, Subscribers: 10}, others...)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		var first, second, full affinity.Assignment
		for i := range 30 { // some of these relays would otherwise get the room's node
			relay := fmt.Sprint("relay-", i)
			first = apart("a", relay+"~1", "room")
			var calls sync.WaitGroup
			var answers [3]affinity.Assignment
			for i, id := range []string{"a", "b", "c"} {
				calls.Go(func() { answers[i] = apart(id, relay+"~2", "room", relay+"~1", "none") })
			}
			calls.Wait()
			second = answers[0]
			for _, a := range answers {
				if a.Epoch != second.Epoch {
					t.Errorf("three callers at once moved the relay more than once: %+v", answers)
				}
			}
			full = apart("b", relay+"~3", "room", relay+"~1", relay+"~2")
			if first.Node == at || second.Node == at || first.Node == second.Node || full.Node == "" {
				t.Errorf("the room is on %s, its relays are on %s, %s and %s", at, first.Node, second.Node, full.Node)
			}
			if again := apart("c", relay+"~2", "room", relay+"~1"); again.Epoch != second.Epoch {
				t.Errorf("the relay moved from %+v to %+v, and was apart", second, again)
			}
		}
		if _, err := f.rooms["a"].ResolveApart(t.Context(), "relay*", affinity.Demand{}, "room"); !errors.Is(err, affinity.ErrName) {
			t.Error(err)
		}
		if _, err := f.rooms["a"].ResolveApart(t.Context(), "relay", affinity.Demand{}, "room*"); !errors.Is(err, affinity.ErrName) {
			t.Error(err)
		}
		if lost(home) {
			t.Error("the room itself has moved")
		}
	})
}
