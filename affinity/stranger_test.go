package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
)

// The store was away and has lost all data. A node without the room in its cache does not
// claim the room before the host has restored the pin, not even the first node that
// detects that the store is back.
func TestStrangers(t *testing.T) { // S0.1, S0.5
	for _, away := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := &replaced{}
				data.empty()
				store := &faulty{Store: data}
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				// The room was moved away from its owner, so other nodes would guess wrong.
				room := "r"
				owner := string(f.owner(room))
				f.resolve(owner, room, 2)
				home := f.not(owner)
				stranger := f.not(owner, home)
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
					t.Errorf("%s claimed it: %v", stranger, hosting.Err())
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

// An answer from before the loss proves nothing after it: a room that was hosted by that
// answer, and lives on another node now, is a conflict and no move.
func TestLossWhileHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &losing{replaced: &replaced{}}
		store.empty()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		room := "r"
		owner := string(f.owner(room))
		other := f.not(owner)
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
