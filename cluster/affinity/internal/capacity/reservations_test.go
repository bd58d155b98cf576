package capacity

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestReservations(t *testing.T) {
	now := time.Now()
	r := &Reservations{Settle: 5 * time.Second}
	r.add("a", 10, now)
	second := r.add("a", 20, now.Add(time.Second))
	r.add("a", 20, now.Add(2*time.Second))
	r.add("b", 7, now)
	none := []Reservation{r.add("b", 0, now), r.add("b", -5, now), {"a", claim{11, now}}, {"c", claim{1, now}}}
	check := func(a, b int64) {
		t.Helper()
		if r.sum("a") != a || r.sum("b") != b || r.sum("c") != 0 {
			t.Errorf("reserved %d and %d, want %d and %d", r.sum("a"), r.sum("b"), a, b)
		}
	}
	check(50, 7)
	r.Cancel(second)
	r.Cancel(second)
	for _, res := range none { // never made
		r.Cancel(res)
	}
	check(30, 7)
	gone := new(cluster.Snapshot) // the nodes are gone, so they report no load
	r.Expire(gone, now.Add(5*time.Second-1))
	check(30, 7)
	r.Expire(gone, now.Add(5*time.Second))
	check(20, 0)
	r.Expire(gone, now.Add(time.Hour))
	check(0, 0)
	if len(r.nodes) != 0 {
		t.Errorf("%d nodes are left", len(r.nodes))
	}
}

// Concurrent placements see each other's reservations. Together they fill each node exactly to its hard ceiling.
func TestReservationsPlaceConcurrently(t *testing.T) {
	s := &cluster.Snapshot{Members: []*cluster.Member{
		{Profile: lease.Profile{ID: "a", Weight: 100, Capacity: 100}, State: lease.Active, Load: 0},
		{Profile: lease.Profile{ID: "b", Weight: 100, Capacity: 100}, State: lease.Active, Load: 0},
	}}
	in := placement.Input{Partitions: 8, Nodes: []placement.Node{{ID: "a", Weight: 100}, {ID: "b", Weight: 100}}}
	var err error
	if s.Table, err = placement.Compute(in); err != nil {
		t.Fatal(err)
	}
	r := &Reservations{Limits: Ceilings{Soft: 80, Hard: 100}, Settle: time.Minute}
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			if _, _, err := r.Place(s, Request{Partition: placement.Partition(i % 8), Cost: 10}, 1); err != nil && !errors.Is(err, ErrNoCapacity) {
				t.Error(err)
			}
			r.PlaceOn(s.Members[i%2], Request{Cost: 10})
		})
	}
	wait.Wait()
	if a, b := r.sum("a"), r.sum("b"); a != 100 || b != 100 {
		t.Errorf("reserved %d and %d units of 100 each", a, b)
	}
}

// A sweep reserves a multiple of the cost, because other nodes sweep at the same time. If a node reports no load, the
// sweep reserves the cost only once, because that reservation would last for an hour.
func TestReservationsOfASweep(t *testing.T) {
	for load, want := range map[int64]int64{lease.NoLoad: 2, 0: 20} {
		m := &cluster.Member{Profile: lease.Profile{ID: "m", Capacity: 100, Weight: 1}, Load: load, State: lease.Active}
		table, err := placement.Compute(placement.Input{Partitions: 1, Nodes: []placement.Node{{ID: "m", Weight: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		s := &cluster.Snapshot{Members: []*cluster.Member{m}, Table: table}
		r := &Reservations{Settle: 5 * time.Second, Keep: time.Hour}
		if _, _, err := r.Place(s, Request{Room: "r", Cost: 2}, 10); err != nil || r.sum("m") != want {
			t.Errorf("load %d: reserved %d, want %d, %v", load, r.sum("m"), want, err)
		}
	}
}

// If a node has a capacity but reports no load, reservations are the only information about its load. They last as long
// as a pin that is not refreshed, and Expire reports when they end.
func TestReservationsWithoutReports(t *testing.T) {
	start := time.Now()
	mute := &cluster.Member{Profile: lease.Profile{ID: "mute", Capacity: 100}, Load: lease.NoLoad}
	s := &cluster.Snapshot{Members: []*cluster.Member{mute}}
	r := &Reservations{Settle: 5 * time.Second, Keep: time.Hour}
	for i := range 100_000 {
		r.add("mute", 2, start.Add(time.Duration(i)*30*time.Millisecond))
	}
	end := start.Add(55 * time.Minute)
	if unseen := r.Expire(s, end); r.sum("mute") != 200_000 || len(unseen) != 0 {
		t.Errorf("after 55 minutes: reserved %d, unseen %v", r.sum("mute"), unseen)
	}
	if n := len(r.nodes["mute"].claims); n > 1000 {
		t.Errorf("memory grows with each room: %d claims", n)
	}
	unseen := r.Expire(s, start.Add(time.Hour+20*time.Minute))
	if rest := r.sum("mute"); rest <= 50_000 || rest >= 150_000 || unseen["mute"] != 200_000-rest {
		t.Errorf("after 80 minutes: reserved %d, unseen %v", rest, unseen)
	}
	if unseen := r.Expire(new(cluster.Snapshot), start.Add(2*time.Hour)); r.sum("mute") != 0 || len(unseen) != 0 {
		t.Errorf("on a node that is gone: reserved %d, unseen %v", r.sum("mute"), unseen)
	}
}

// A firm request needs headroom below the soft ceiling, even without a hard ceiling.
func TestFirm(t *testing.T) {
	table, err := placement.Compute(placement.Input{Partitions: 1, Nodes: []placement.Node{{ID: "m", Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &cluster.Member{Profile: lease.Profile{ID: "m", Capacity: 100, Weight: 1}, Load: 30, State: lease.Active}
	s := &cluster.Snapshot{Members: []*cluster.Member{m}, Table: table}
	for what, c := range map[string]struct {
		q    Request
		fits bool
	}{
		"firm":             {Request{Cost: 50, Firm: true}, true},
		"firm, too large":  {Request{Cost: 51, Firm: true}, false},
		"not firm, larger": {Request{Cost: 51}, true},
	} {
		r := &Reservations{Limits: Ceilings{Soft: 80}, Settle: time.Minute}
		if _, _, err := r.Place(s, c.q, 1); (err == nil) != c.fits || err != nil && !errors.Is(err, ErrNoCapacity) {
			t.Errorf("%s: %v", what, err)
		}
		r = &Reservations{Limits: Ceilings{Soft: 80}, Settle: time.Minute}
		if _, ok := r.PlaceOn(m, c.q); ok != c.fits {
			t.Errorf("%s: on the node: %v", what, ok)
		}
	}
	m.Capacity = 0
	if _, ok := new(Reservations).PlaceOn(m, Request{Cost: 51, Firm: true}); !ok {
		t.Error("a node without a capacity refuses a reservation")
	}
}
