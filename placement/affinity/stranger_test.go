package affinity_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/placement/affinity"
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
