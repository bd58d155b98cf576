package affinity_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// told returns the history of an instance, as one line per event.
func (f *fleet) told(id string) (lines []string) {
	for _, e := range f.rooms[id].History() {
		line := fmt.Sprint(e.Kind, " ", e.Member, " ", e.Reason, e.Why)
		if e.Rooms > 0 {
			line = fmt.Sprint(line, " ", e.Rooms)
		}
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func wantTold(t *testing.T, f *fleet, id string, want ...string) {
	t.Helper()
	if got := f.told(id); !slices.Equal(got, want) {
		t.Fatalf("%s tells\n%s\nwant\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// hostedAt counts the rooms that are pinned to a node.
func (f *fleet) hostedAt(id string) (n int) {
	for _, pin := range pins(f.t, f.store) {
		if string(pin.Node) == id {
			n++
		}
	}
	return n
}

// All rooms that leave a node for the same reason are one event, no matter how many rooms move. Instances that learn of
// a move from the store give the same reason as the instance that moved the room, even before they know that the node
// is dead.
func TestHistoryOfMoves(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		for _, room := range names(300) {
			f.host("a", room, 1)
		}
		moves := f.published("a")
		died := f.hostedAt("c")
		f.crash("c")
		time.Sleep(2 * soon)
		synctest.Wait()
		for _, m := range moves.once(t, died) {
			if m.Reason != "its node died" {
				t.Fatalf("%+v", m)
			}
		}
		wantTold(t, f, "a", fmt.Sprint("rooms-moved c its node died ", died))

		time.Sleep(time.Minute)
		evacuated := f.hostedAt("b")
		if err := f.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := evacuate.Run(t.Context(), f.Agent("b"), f.rooms["b"], evacuate.Plan{}, nil); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if got, want := f.told(id), fmt.Sprint("rooms-moved b its node is draining ", evacuated); len(got) != 2 || got[1] != want {
				t.Fatalf("%s tells %q, want %s", id, got, want)
			}
		}
		if e := f.rooms["b"].History()[1]; e.Lasted < 10*time.Second || math.Abs(float64(e.Lasted)-float64(time.Since(e.At))) > float64(2*time.Second) {
			t.Errorf("%+v has ended just now", e)
		}

		f.host("a", "r", 1)
		if err := f.Agent("b").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		f.move("b", "b")
		synctest.Wait()
		for _, id := range []string{"a", "b"} {
			if got := f.told(id); len(got) != 3 || got[2] != "rooms-moved a moved on request 1" {
				t.Errorf("%s tells %q", id, got)
			}
		}
	})
}

// If a drained node is asked to host a room again, it moves the room away, and gives the drain as the reason.
func TestReasonOfDrainedNode(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		node := string(f.resolve("a", "r", 1).Node)
		other := f.not(node)
		f.resolve(other, "r", 1)
		moves := f.published(other)
		if err := f.Agent(node).Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		if _, err := f.rooms[node].Host(t.Context(), "r", affinity.Demand{Size: 1}); err == nil {
			t.Fatal("the draining node hosts the room")
		}
		time.Sleep(soon)
		synctest.Wait()
		if m := moves.once(t, 1)["r"]; m.Reason != "its node is draining" {
			t.Errorf("%+v", m)
		}
	})
}

// An outage of the store adds two events. A loss of data adds one event, and the restored pins add another.
func TestHistoryOfStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		for _, room := range names(1000) {
			f.host("a", room, 1)
		}
		wantTold(t, f, "a")
		store.fails.Store(true)
		time.Sleep(14 * time.Second)
		store.fails.Store(false)
		time.Sleep(soon)
		for _, id := range []string{"a", "b"} {
			wantTold(t, f, id, "store-away connection refused", "store-back")
			if e := f.rooms[id].History()[1]; e.Lasted < 11*time.Second || e.Lasted > 15*time.Second { // by heartbeats
				t.Errorf("the store is back after %v", e.Lasted)
			}
		}
		hosts := map[string]int{"a": f.hostedAt("a"), "b": f.hostedAt("b")}
		store.pause.Store(int64(10 * time.Millisecond)) // it takes seconds to restore all
		data.empty()
		time.Sleep(time.Minute)
		for id, rooms := range hosts {
			wantTold(t, f, id, "store-away connection refused", "store-back",
				"data-lost", fmt.Sprint("pins-restored ", rooms))
		}
	})
}

// If two nodes hosted the same rooms without the store, the node that loses these rooms adds a single event.
func TestHistoryOfConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		f.Split([]string{"a"}, []string{"b"})
		time.Sleep(30 * time.Second)
		store.fails.Store(true)
		time.Sleep(10 * time.Second)
		const rooms = 5
		for _, room := range names(rooms) {
			f.hostAt("a", room, 1)
			f.hostAt("b", room, 1)
		}
		f.Heal()
		store.fails.Store(false)
		time.Sleep(2 * time.Minute)
		conflicts := 0
		for _, id := range []string{"a", "b"} {
			for _, e := range f.rooms[id].History() {
				if e.Kind == affinity.EventRoomsMoved {
					t.Errorf("a conflict is a move, too: %+v", e)
				}
				if e.Kind == affinity.EventConflict {
					conflicts += e.Rooms
					if string(e.Member) != f.not(id) {
						t.Errorf("%+v at %s", e, id)
					}
				}
			}
		}
		if conflicts != rooms {
			t.Errorf("%d conflicts: a tells %q, b tells %q", conflicts, f.told("a"), f.told("b"))
		}
	})
}
