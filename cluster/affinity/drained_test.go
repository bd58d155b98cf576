package affinity_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
)

// A drained node keeps the rooms that it hosts, and gets no new rooms. Rooms that are pinned to it but not
// hosted anywhere move to an active node.
func TestDrainedNodeGetsNoMeeting(t *testing.T) {
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

// While all nodes drain, rooms stay where they are, even for instances that have not asked for them before.
// Rooms without a node do not get one.
func TestAllDrained(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		before, hosted := make(map[string]affinity.Assignment), make(map[string]*affinity.Hosting)
		for i, room := range names(60) {
			if before[room] = f.resolve("a", room, 2); i%2 == 0 {
				hosted[room] = f.host("a", room, 2)
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			drain(t, f, id)
		}
		f.start("d")
		drain(t, f, "d") // no room is in its cache
		for room, was := range before {
			if is := f.resolve("d", room, 2); is.Incarnation != was.Incarnation || is.Epoch != was.Epoch {
				t.Fatalf("%s was on %v, and d says %+v", room, was.Incarnation, is)
			}
			h, err := f.rooms[string(was.Node)].Host(t.Context(), room, affinity.Demand{Size: 2})
			if err != nil || h.Epoch() != was.Epoch || hosted[room] != nil && hosted[room] != h {
				t.Fatalf("%s at its node: %v", room, err)
			}
		}
		for id, r := range f.rooms {
			_, err := r.Resolve(t.Context(), "new", affinity.Demand{})
			if !errors.Is(err, cluster.ErrNoMembers) || !strings.Contains(err.Error(), "draining; undrain") {
				t.Errorf("a new room at %s: %v", id, err)
			}
			if _, err := r.Lookup(t.Context(), "new"); !errors.Is(err, affinity.ErrNoPin) {
				t.Errorf("lookup of a room without a pin at %s: %v", id, err)
			}
		}
		f.crash("c")
		time.Sleep(2 * soon)
		for room, was := range before {
			a, err := f.rooms["d"].Resolve(t.Context(), room, affinity.Demand{Size: 2})
			if was.Node == "c" && !errors.Is(err, cluster.ErrNoMembers) || was.Node != "c" && (err != nil || a.Incarnation != was.Incarnation) {
				t.Fatalf("%s was on %v; after the crash of c, d says %+v, %v", room, was.Incarnation, a, err)
			}
		}
		if err := f.Agent("d").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * soon)
		for room, was := range before {
			if is := f.resolve("a", room, 2); was.Node == "c" && is.Node != "d" || was.Node != "c" && is.Incarnation != was.Incarnation {
				t.Fatalf("%s was on %v; with d back, a says %+v", room, was.Incarnation, is)
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
