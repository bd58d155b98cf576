package affinity_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
)

// A room is released, or moved away, and comes back to its node, mostly before the keeper there
// has seen that. The old hosting ends nevertheless, and a new one begins with a greater epoch.
func TestReleasedAndClaimedAnew(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, f *fleet, home, other string){
		"released": func(t *testing.T, f *fleet, _, other string) {
			if err := f.rooms[other].Release(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			f.resolve(other, "r", 2)
		},
		"moved and back": func(t *testing.T, f *fleet, home, other string) {
			f.move(other, other)
			f.move(other, home)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, "a b c", func(t *testing.T, f *fleet) {
				home := string(f.owner("r"))
				h := f.host("a", "r", 2)
				time.Sleep(time.Second)
				was, other := h.Epoch(), f.not(home)
				leave(t, f, home, other)
				synctest.Wait()
				if a := f.resolve(other, "r", 2); string(a.Node) != home || a.Epoch <= was {
					t.Fatalf("it has not come back: %+v", a)
				}
				time.Sleep(time.Second)
				_, seen := errors.AsType[*affinity.NotOwnerError](h.Err()) // the keeper ran between the two moves
				if !lost(h) || !seen && !errors.Is(h.Err(), affinity.ErrReleased) || seen && name == "released" {
					t.Errorf("lost %v: %v", lost(h), h.Err())
				}
				again := f.host(other, "r", 2)
				if again == h || again.Epoch() <= was || lost(again) {
					t.Errorf("hosted again: epoch %d after %d", again.Epoch(), was)
				}
				time.Sleep(time.Minute)
				if lost(again) {
					t.Errorf("lost: %v", again.Err())
				}
			})
		})
	}
}
