package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// counted is the time after which all nodes know a change of a reservation or of a load.
const counted = 20 * time.Second

// reserve reserves units for the room r at one node, and returns the room's node.
func (f *fleet) reserve(at string, units int64, lasts time.Duration) string {
	f.t.Helper()
	a, err := f.rooms[at].Reserve(f.t.Context(), "r", affinity.Demand{Units: units}, time.Now().Add(lasts))
	if err != nil {
		f.t.Fatalf("%s reserves r: %v", at, err)
	}
	return string(a.Node)
}

// loadOf returns the load of a node as another node knows it.
func (f *fleet) loadOf(id string) int64 {
	f.t.Helper()
	m, ok := f.Agent(f.not(id)).Snapshot().Member(lease.NodeID(id))
	if !ok {
		f.t.Fatalf("no %s", id)
	}
	return m.Load
}

// carries fails the test unless a node has the load.
func (f *fleet) carries(what, id string, want int64) {
	f.t.Helper()
	if got := f.loadOf(id); got != want {
		f.t.Errorf("%s: the load of %s is %d, want %d", what, id, got, want)
	}
}

// reservedAt fails the test unless all nodes list one reservation of r, on a node, or none if node is empty.
func (f *fleet) reservedAt(what, node string, units int64) {
	f.t.Helper()
	for _, id := range f.IDs() {
		all, err := f.rooms[id].Reservations(f.t.Context())
		switch {
		case err != nil:
			f.t.Errorf("%s: %s: %v", what, id, err)
		case node == "" && len(all) == 0:
		case len(all) != 1 || all[0].Room != "r" || string(all[0].Node) != node || all[0].Units != units:
			f.t.Errorf("%s: %s lists %+v, want %d units on %q", what, id, all, units, node)
		}
	}
}

// bothLoads runs a test with each kind of load.
func bothLoads(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	for what, report := range map[string]bool{"computed load": true, "measured load": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: report}, "a", "b", "c"))
			})
		})
	}
}

// A reservation counts as load while nobody is in the room, so other rooms go elsewhere. It ends by itself.
func TestReserve(t *testing.T) {
	bothLoads(t, func(t *testing.T, f *fleet) {
		at := f.reserve("a", 600, 2*time.Minute)
		time.Sleep(counted)
		f.carries("reserved", at, 600)
		f.reservedAt("reserved", at, 600)
		if a := f.resolve("b", "r", 2); string(a.Node) != at {
			t.Errorf("participants are sent to %s, want %s", a.Node, at)
		}
		if s := f.rooms[at].Stats(); s.Ahead != 600 || s.Hosted != 1 || s.Headroom != 200 {
			t.Errorf("%+v", s)
		}
		if rooms, units := f.rooms[at].Hosted(); units != 600 || len(rooms) != 1 || rooms[0].Units != 600 {
			t.Errorf("hosted %v, %d units", rooms, units)
		}
		for i := range 4 {
			room := f.ownedBy(at, fmt.Sprint("other-", i, "-"))
			a, err := f.rooms["b"].Resolve(t.Context(), room, affinity.Demand{Units: 210})
			if err != nil || string(a.Node) == at {
				t.Errorf("%v, %v", a, err)
			}
		}
		time.Sleep(2 * time.Minute)
		f.carries("over", at, 0)
		f.reservedAt("over", "", 0)
		if s := f.rooms[at].Stats(); s.Ahead != 0 || s.Hosted != 0 || s.Headroom != 800 {
			t.Errorf("over: %+v", s)
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("over: the room is pinned: %v", err)
		}
	})
}

// Participants use up a reservation, and count only beyond it. A room that is in use when its reservation ends goes
// on.
func TestReservedUnitsAreUsedUp(t *testing.T) {
	bothLoads(t, func(t *testing.T, f *fleet) {
		measured := func(id string, units int64) {
			if !f.cfg.ReportLoad {
				f.Agent(id).SetLoad(units)
			}
		}
		at := f.reserve("a", 600, 3*time.Minute)
		time.Sleep(counted)
		h := f.hostAt(at, "r", 1)
		for size := 1; size <= 30; size++ { // 30·29 = 870 units
			h.Touch(size)
			for range 2 {
				time.Sleep(time.Second)
				if load := f.loadOf(at); load < 600 {
					t.Fatalf("with %d participants, the load is %d", size, load)
				}
			}
			measured(at, affinity.FullMesh(size)) // late
		}
		time.Sleep(counted)
		f.carries("full", at, 870)
		h.Touch(20)
		measured(at, 380)
		time.Sleep(counted)
		f.carries("some have left", at, 600)
		time.Sleep(2 * time.Minute)
		f.carries("over", at, 380)
		if lost(h) {
			t.Errorf("the room is lost: %v", h.Err())
		}
		pin := pins(t, f.store)["r"]
		if pin.Size != 20 || pin.Needs != "" {
			t.Errorf("over: the pin has size %d, needs %q", pin.Size, pin.Needs)
		}
	})
}

// A cancelled reservation is over.
func TestCancelReservation(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		if err := f.rooms["b"].CancelReservation(t.Context(), "r"); !errors.Is(err, affinity.ErrNoReservation) {
			t.Errorf("before: %v", err)
		}
		at := f.reserve("a", 600, time.Hour)
		time.Sleep(counted)
		if err := f.rooms[f.not(at)].CancelReservation(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		f.reservedAt("cancelled", "", 0)
		time.Sleep(counted)
		f.carries("cancelled", at, 0)
		if s := f.rooms[at].Stats(); s.Hosted != 0 {
			t.Errorf("%d rooms are hosted", s.Hosted)
		}
	})
}

// A later call replaces the reservation.
func TestReserveAgain(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		at := f.reserve("a", 300, time.Hour)
		time.Sleep(counted)
		for _, units := range []int64{600, 200} {
			if again := f.reserve("b", units, time.Hour); again != at {
				t.Errorf("%d units are reserved on %s, want %s", units, again, at)
			}
			time.Sleep(counted)
			f.carries("again", at, units)
			f.reservedAt("again", at, units)
		}
		_, err := f.rooms["b"].Reserve(t.Context(), "r", affinity.Demand{Units: 900}, time.Now().Add(time.Hour))
		if !errors.Is(err, affinity.ErrNoCapacity) {
			t.Errorf("more than the node has: %v", err)
		}
		f.reservedAt("in vain", at, 200)
	})
}

// When the node of a reservation dies, the room moves, and the reservation counts there.
func TestReservationFailsOver(t *testing.T) {
	bothLoads(t, func(t *testing.T, f *fleet) {
		at := f.reserve("a", 600, time.Hour)
		time.Sleep(counted)
		f.crash(at)
		time.Sleep(soon + counted)
		a := f.resolve(f.not(at), "r", 1)
		if string(a.Node) == at {
			t.Fatalf("the room is on the dead %s", at)
		}
		f.carries("failed over", string(a.Node), 600)
		f.reservedAt("failed over", string(a.Node), 600)
	})
}

// A draining node moves the rooms that are reserved on it.
func TestReservationIsEvacuated(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		at := f.reserve("a", 600, time.Hour)
		time.Sleep(counted)
		if err := f.Agent(at).Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := evacuate.Run(t.Context(), f.Agent(at), f.rooms[at], evacuate.Plan{}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(counted)
		a := f.resolve("a", "r", 1)
		if string(a.Node) == at {
			t.Fatalf("the room is still on %s", at)
		}
		f.carries("drained", at, 0)
		f.carries("moved", string(a.Node), 600)
		f.reservedAt("moved", string(a.Node), 600)
	})
}

// If the store loses its data, the reservations come back.
func TestReservationsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReplaced()
		f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
		at := f.reserve("a", 600, time.Hour)
		time.Sleep(counted)
		for range 5 {
			store.empty()
			time.Sleep(counted)
			f.carries("restored", at, 600)
			f.reservedAt("restored", at, 600)
		}
	})
}

// A node may notice only with the next heartbeat that the store has lost its data.
func TestReservationsAreRestoredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReplaced()
		f := newFleet(t, store, affinity.Config{}, "a")
		f.reserve("a", 600, time.Hour)
		time.Sleep(counted)
		for range 5 {
			store.failOver()
			for lists := store.lists.Load(); store.lists.Load() == lists; {
				time.Sleep(time.Millisecond)
			}
			f.rooms["a"].Changed("")
			time.Sleep(counted)
			f.reservedAt("restored", "a", 600)
		}
	})
}

// While the store does not answer, reservations count, and end in time.
func TestReservationsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
		at := f.reserve("a", 600, 3*time.Minute)
		time.Sleep(counted)
		store.fails.Store(true)
		if _, err := f.rooms["a"].Reserve(t.Context(), "other", affinity.Demand{Units: 1}, time.Now().Add(time.Hour)); !errors.Is(err, pinstore.ErrStore) {
			t.Errorf("reserved without the store: %v", err)
		}
		time.Sleep(time.Minute)
		f.carries("down", at, 600)
		time.Sleep(2 * time.Minute)
		f.carries("over", at, 0)
		store.fails.Store(false)
		time.Sleep(counted)
		if s := f.rooms[at].Stats(); s.Hosted != 0 {
			t.Errorf("%d rooms are hosted", s.Hosted)
		}
	})
}

// While the store does not confirm the pin of a reserved room, no node hosts the room, because another node may have it.
func TestReservationNeedsAPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a")
		if _, err := f.rooms["a"].Reserve(t.Context(), "first", affinity.Demand{Units: 1}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for f.rooms["a"].Stats().Hosted == 0 { // the next list follows after seconds
			time.Sleep(10 * time.Millisecond)
		}
		f.reserve("a", 600, time.Hour)
		time.Sleep(10 * time.Millisecond) // the store has notified of the pin, and the keeper has read it
		store.stuck.Store(true)
		time.Sleep(counted)
		if s := f.rooms["a"].Stats(); s.Hosted != 1 {
			t.Errorf("%d rooms are hosted without the store", s.Hosted)
		}
		store.stuck.Store(false)
		time.Sleep(counted)
		if s := f.rooms["a"].Stats(); s.Hosted != 2 {
			t.Errorf("%d rooms are hosted", s.Hosted)
		}
	})
}

// Callers that reserve a room at once get one node.
func TestReserveAtOnce(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		nodes := make(chan string)
		for _, id := range []string{"a", "b", "c", "a"} {
			go func() {
				a, err := f.rooms[id].Reserve(t.Context(), "r", affinity.Demand{Units: 600}, time.Now().Add(time.Hour))
				if err != nil {
					t.Error(err)
				}
				nodes <- string(a.Node)
			}()
		}
		at := <-nodes
		for range 3 {
			if other := <-nodes; other != at {
				t.Errorf("%s and %s", at, other)
			}
		}
		time.Sleep(counted)
		f.carries("reserved", at, 600)
		f.reservedAt("reserved", at, 600)
	})
}

// Nodes that reserve at once do not promise the same units to two rooms.
func TestReservePromisesOnce(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		f.Agent("a").SetLoad(700)
		time.Sleep(counted)
		results := make(chan error)
		for _, id := range []string{"a", "b"} {
			go func() {
				_, err := f.rooms[id].Reserve(t.Context(), "for "+id, affinity.Demand{Units: 500}, time.Now().Add(time.Hour))
				results <- err
			}()
		}
		first, second := <-results, <-results
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), affinity.ErrNoCapacity) {
			t.Errorf("%v and %v", first, second)
		}
		time.Sleep(counted)
		f.carries("reserved", "b", 500)
	})
}

// If no node has headroom, nothing is reserved, although a room would be placed.
func TestReserveNeedsHeadroom(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		for _, id := range f.IDs() {
			f.Agent(id).SetLoad(500)
		}
		time.Sleep(counted)
		for _, d := range []affinity.Demand{{Units: 301}, {Size: 20}, {Units: 301, Prefer: []string{"zone:x"}}} {
			_, err := f.rooms["a"].Reserve(t.Context(), "r", d, time.Now().Add(time.Hour))
			if !errors.Is(err, affinity.ErrNoCapacity) {
				t.Errorf("%v: %v", d, err)
			}
		}
		f.reservedAt("refused", "", 0)
		if all := pins(t, f.store); len(all) != 0 {
			t.Errorf("pinned: %v", all)
		}
		f.reserve("a", 300, time.Hour)
	})
}

// The participants of a reserved room join it although other rooms have filled its node.
func TestReservedUnitsAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{HardCeiling: 100, LimitGrowth: true, ReportLoad: true}, "a", "b", "c")
		at := f.reserve("a", 600, time.Hour)
		other := f.ownedBy(at, "other-")
		h, err := f.rooms[at].Host(t.Context(), other, affinity.Demand{Units: 100})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Restate(affinity.Demand{Units: 400}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(counted)
		f.carries("full", at, capacity)
		if err := f.hostAt(at, "r", 2).Restate(affinity.Demand{Size: 1}); err != nil {
			t.Fatal(err)
		}
		f.hostAt(at, "r", 24)                                                                                                 // 24·23 = 552 units
		if _, err := f.rooms[at].Host(t.Context(), "r", affinity.Demand{Size: 26}); !errors.Is(err, affinity.ErrNoCapacity) { // 650
			t.Errorf("beyond the reservation: %v", err)
		}
	})
}

// The early participants of a room come and go, and the reservation stays. Release ends the room, and the reservation
// brings it back.
func TestReservationOutlivesRoom(t *testing.T) {
	bothLoads(t, func(t *testing.T, f *fleet) {
		at := f.reserve("a", 600, 5*time.Minute)
		var h *affinity.Hosting
		for range 2 {
			err := f.rooms[at].Serve(t.Context(), "r", affinity.Demand{}, func(_ context.Context, served *affinity.Hosting) error {
				h = served
				time.Sleep(30 * time.Second)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			f.carries("left", at, 600)
			if lost(h) {
				t.Errorf("the room is lost: %v", h.Err())
			}
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(counted)
		a := f.resolve("b", "r", 1)
		f.carries("released", string(a.Node), 600)
		f.reservedAt("released", string(a.Node), 600)
		if err := f.rooms[f.not(string(a.Node))].Release(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(counted)
		a = f.resolve("b", "r", 1)
		f.carries("released elsewhere", string(a.Node), 600)
		time.Sleep(3 * time.Minute)
		for _, id := range f.IDs() {
			f.carries("over", id, 0)
		}
	})
}

// If the participants do not return after a failover, or are no longer reported, only the reservation counts.
func TestReservedRoomIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b", "c")
		at := f.reserve("a", 600, 4*time.Minute)
		f.hostAt(at, "r", 30)
		time.Sleep(counted)
		f.crash(at)
		time.Sleep(soon + counted)
		next := string(f.resolve(f.not(at), "r", 1).Node)
		f.carries("failed over", next, 870)
		time.Sleep(time.Minute)
		f.carries("nobody returns", next, 600)
		h := f.hostAt(next, "r", 30)
		h.LapseAfter(30 * time.Second)
		time.Sleep(counted)
		f.carries("they return", next, 870)
		time.Sleep(30 * time.Second)
		f.carries("not reported", next, 600)
		if lost(h) {
			t.Errorf("lost: %v", h.Err())
		}
		time.Sleep(4 * time.Minute)
		f.carries("over", next, 0)
		wantLost(t, h, affinity.ErrReleased)
	})
}

// A room that only its reservation held stays hosted if its application reports participants again.
func TestReservedRoomIsTouchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b", "c")
		at := f.reserve("a", 600, 3*time.Minute)
		h := f.hostAt(at, "r", 30)
		h.LapseAfter(30 * time.Second)
		time.Sleep(40*time.Second + counted)
		f.carries("not reported", at, 600)
		for range 4 * 3 {
			h.Touch(30)
			time.Sleep(20 * time.Second)
		}
		f.carries("the reservation is over", at, 870)
		if lost(h) {
			t.Errorf("lost: %v", h.Err())
		}
	})
}

// The list of reservations is limited.
func TestReservationsAreLimited(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		for i := range affinity.MaxReservations {
			r := pinstore.Reservation{Room: fmt.Sprint("r-", i), Needs: "ahead=0", Until: time.Now().Add(time.Hour)}
			if err := f.store.Reserve(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		reserve := func(room string) error {
			_, err := f.rooms["a"].Reserve(t.Context(), room, affinity.Demand{Units: 1}, time.Now().Add(time.Hour))
			return err
		}
		if err := reserve("one more"); !errors.Is(err, affinity.ErrReservations) {
			t.Errorf("one more: %v", err)
		}
		if err := errors.Join(reserve("r-7"), f.rooms["b"].CancelReservation(t.Context(), "r-8"), reserve("one more")); err != nil {
			t.Error(err)
		}
	})
}

func TestReserveRejects(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		for what, c := range map[string]struct {
			d     affinity.Demand
			lasts time.Duration
			want  error
		}{
			"no cost":     {affinity.Demand{Prefer: []string{"zone:x"}}, time.Hour, affinity.ErrDemand},
			"a past time": {affinity.Demand{Size: 2}, -time.Second, affinity.ErrDemand},
			"too long":    {affinity.Demand{Size: 2}, affinity.MaxReserved + time.Second, affinity.ErrDemand},
			"no label":    {affinity.Demand{Size: 2, Require: map[string]string{"recorder": "yes"}}, time.Hour, affinity.ErrRequire},
		} {
			if _, err := f.rooms["a"].Reserve(t.Context(), "r", c.d, time.Now().Add(c.lasts)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
		f.reservedAt("rejected", "", 0)
	})
}
