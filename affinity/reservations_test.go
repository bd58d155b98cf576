package affinity

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
	r := &reservations{settle: 5 * time.Second}
	r.add("a", 10, now)
	second := r.add("a", 20, now.Add(time.Second))
	r.add("a", 20, now.Add(2*time.Second))
	r.add("b", 7, now)
	none := []reservation{r.add("b", 0, now), r.add("b", -5, now), {"a", claim{11, now}}, {"c", claim{1, now}}}
	check := func(a, b int64) {
		t.Helper()
		if r.sum("a") != a || r.sum("b") != b || r.sum("c") != 0 {
			t.Errorf("reserved %d and %d, want %d and %d", r.sum("a"), r.sum("b"), a, b)
		}
	}
	check(50, 7)
	r.cancel(second)
	r.cancel(second)
	for _, res := range none { // never made
		r.cancel(res)
	}
	check(30, 7)
	gone := new(cluster.Snapshot) // nodes that are gone report no load
	r.expire(gone, now.Add(5*time.Second-1))
	check(30, 7)
	r.expire(gone, now.Add(5*time.Second))
	check(20, 0)
	r.expire(gone, now.Add(time.Hour))
	check(0, 0)
	if len(r.nodes) != 0 {
		t.Errorf("%d nodes are left", len(r.nodes))
	}
}

// Concurrent placements see each other's reservations: together they fill a node to
// its hard ceiling and not above.
func TestReservationsPlaceConcurrently(t *testing.T) {
	s := &cluster.Snapshot{Members: []*cluster.Member{
		{ID: "a", State: lease.Active, Weight: 100, Capacity: 100, Load: 0},
		{ID: "b", State: lease.Active, Weight: 100, Capacity: 100, Load: 0},
	}}
	in := placement.Input{Partitions: 8, Nodes: []placement.Node{{ID: "a", Weight: 100}, {ID: "b", Weight: 100}}}
	var err error
	if s.Table, err = placement.Compute(in); err != nil {
		t.Fatal(err)
	}
	r := &reservations{limits: ceilings{soft: 80, hard: 100}, settle: time.Minute}
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			if _, _, err := r.place(s, request{partition: placement.Partition(i % 8), cost: 10}, 1); err != nil && !errors.Is(err, ErrNoCapacity) {
				t.Error(err)
			}
			r.placeOn(s.Members[i%2], request{cost: 10})
		})
	}
	wait.Wait()
	if a, b := r.sum("a"), r.sum("b"); a != 100 || b != 100 {
		t.Errorf("reserved %d and %d units of 100 each", a, b)
	}
}
