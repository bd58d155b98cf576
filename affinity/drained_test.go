package affinity_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
)

// A drained node keeps the meetings that it hosts, and gets no new one: rooms that were
// pinned to it, and are hosted nowhere, move to an active node.
func TestDrainedNodeGetsNoMeeting(t *testing.T) { // S6.7
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		hosted, waiting := make(map[string]*affinity.Hosting), make(map[string]affinity.Assignment)
		for i, room := range names(60) {
			a := f.resolve("a", room, 2)
			switch {
			case a.Node != "c":
			case i%2 == 0:
				hosted[room] = f.host("a", room, 2)
			default:
				waiting[room] = a
			}
		}
		if len(hosted) == 0 || len(waiting) == 0 {
			t.Fatalf("%d and %d rooms on c", len(hosted), len(waiting))
		}
		drain(t, f, "c")
		for room, h := range hosted {
			if got, err := f.rooms["c"].Host(t.Context(), room, affinity.Demand{Size: 2}); got != h {
				t.Errorf("%s is hosted, and a join gets %v", room, err)
			}
		}
		for room, was := range waiting {
			var elsewhere *affinity.NotOwnerError
			_, err := f.rooms["c"].Host(t.Context(), room, affinity.Demand{Size: 2})
			if !errors.As(err, &elsewhere) || elsewhere.Owner.Node == "c" || elsewhere.Owner.Epoch <= was.Epoch {
				t.Fatalf("%s at the drained node: %v", room, err)
			}
			h, err := f.rooms[string(elsewhere.Owner.Node)].Host(t.Context(), room, affinity.Demand{Size: 2})
			if err != nil || h.Epoch() != elsewhere.Owner.Epoch {
				t.Fatalf("%s at its new home: %v", room, err)
			}
			if a := f.resolve("a", room, 2); a.Node != elsewhere.Owner.Node {
				t.Errorf("%s: a says %+v", room, a)
			}
		}
		for room, h := range hosted {
			if lost(h) {
				t.Errorf("%s is lost: %v", room, h.Err())
			}
		}
	})
}

func drain(t *testing.T, f *fleet, id string) {
	t.Helper()
	if err := f.Agent(id).Drain(t.Context()); err != nil && !errors.Is(err, cluster.ErrNotReady) {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
}
