package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
)

// The store is away for a while and has lost everything. Those who never heard of a
// room must not give it away before its host has pinned it again, not even the one
// who finds out that the store is back.
func TestStrangers(t *testing.T) { // S0.1, S0.5
	for _, away := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := &replaced{}
				data.empty()
				store := &faulty{Store: data}
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				// It lives on a node that it was moved to, so others would guess wrong.
				room := "r"
				owner := string(f.owner(room))
				f.resolve(owner, room, 2)
				ids := f.IDs()
				home, stranger := ids[0], ids[1]
				if home == owner {
					home = ids[2]
				}
				if stranger == owner {
					stranger = ids[2]
				}
				if _, err := f.rooms[owner].Move(t.Context(), room, f.Agent(home).Snapshot().Self.ID); err != nil {
					t.Fatal(err)
				}
				hosting, err := f.rooms[home].Host(t.Context(), room, affinity.Demand{Size: 2})
				if err != nil {
					t.Fatal(err)
				}

				store.fails.Store(true)
				data.empty()
				for since := time.Now(); time.Since(since) < away+5*time.Second; time.Sleep(7 * time.Millisecond) {
					if time.Since(since) >= away {
						store.fails.Store(false)
					}
					f.resolve(stranger, room, 2)
				}
				if lost(hosting) {
					t.Errorf("%s gave it away: %v", stranger, hosting.Err())
				}
				if a := f.resolve(stranger, room, 2); string(a.Node) != home {
					t.Errorf("%s says %+v", stranger, a)
				}
			})
		})
	}
}

// losing is a store that loses all data, and lets another node claim a room,
// just when it has answered an op.
type losing struct {
	*replaced
	next affinity.Op // what follows; once
}

func (s *losing) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	results := s.replaced.Swap(ctx, ops...)
	if s.next.Room != "" && ops[0].Room == s.next.Room {
		next := s.next
		s.next = affinity.Op{}
		s.empty()
		s.replaced.Swap(ctx, next)
	}
	return results
}

// An answer from before the loss does not vouch for what came after it: a room that
// was hosted by it, and is another node's by now, is a conflict and no move.
func TestLossWhileHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &losing{replaced: &replaced{}}
		store.empty()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		room := "r"
		owner := string(f.owner(room))
		other := slices.DeleteFunc(f.IDs(), func(id string) bool { return id == owner })[0]
		self := f.Agent(other).Snapshot().Self
		store.next = affinity.Op{
			Partition: f.Agent(owner).Partition(room), Room: room, TTL: time.Hour,
			Set: affinity.Pin{Incarnation: lease.Incarnation{Node: self.ID, Number: self.Incarnation}},
		}
		h, err := f.rooms[owner].Host(t.Context(), room, affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !lost(h) || !errors.Is(h.Err(), affinity.ErrSplit) || f.rooms[owner].Stats().Conflicts != 1 {
			t.Errorf("lost: %t, %v; %d conflicts", lost(h), h.Err(), f.rooms[owner].Stats().Conflicts)
		}
	})
}
