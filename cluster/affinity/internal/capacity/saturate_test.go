package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// twoNodes returns a snapshot with two nodes. owner owns partition 0.
func twoNodes(t *testing.T) (s *cluster.Snapshot, owner, other *cluster.Member) {
	t.Helper()
	s = &cluster.Snapshot{Members: []*cluster.Member{
		{Profile: lease.Profile{ID: "a", Weight: 100, Capacity: 1000}, State: lease.Active},
		{Profile: lease.Profile{ID: "b", Weight: 100, Capacity: 1000}, State: lease.Active},
	}}
	var err error
	s.Table, err = placement.Compute(placement.Input{Partitions: 8, Nodes: []placement.Node{{ID: "a", Weight: 100}, {ID: "b", Weight: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := s.Table.Owner(0)
	if id == "a" {
		return s, s.Members[0], s.Members[1]
	}
	return s, s.Members[1], s.Members[0]
}

// If a load, a reservation or a cost is close to the greatest int64, the sum does not overflow into apparent headroom.
func TestSaturate(t *testing.T) {
	const huge = math.MaxInt64
	for name, c := range map[string]struct{ load, reserved, cost int64 }{
		"load":                   {huge, 0, 2},
		"load and reservation":   {huge - 1, 5, 2},
		"reservation":            {0, huge, 2},
		"load, nearly":           {huge - 20, 0, 30},
		"cost":                   {10, 0, huge},
		"cost and a reservation": {10, 10, huge - 5},
	} {
		s, owner, other := twoNodes(t)
		owner.Load = c.load
		if c.load == 10 {
			other.Load = c.load
		}
		reserved := func(id lease.NodeID) int64 {
			if id == owner.ID {
				return c.reserved
			}
			return 0
		}
		q := Request{Room: "r", Cost: c.cost}
		to, err := choose(s, q, Ceilings{80, 100}, reserved)
		if c.cost > 1000 {
			if err == nil {
				t.Errorf("%s: a room of %d units goes to %s", name, c.cost, to.Member.ID)
			}
		} else if err != nil || to.Member != other {
			t.Errorf("%s: the room goes to %+v (%v), want %s", name, to.Member, err, other.ID)
		}
		r := &Reservations{Limits: Ceilings{80, 100}}
		r.add(owner.ID, c.reserved, time.Now())
		if _, ok := r.PlaceOn(owner, q); ok {
			t.Errorf("%s: placed on the full node", name)
		}
	}
}

// If the sum of reservations exceeds the greatest int64, it saturates. After enough of them are cancelled, the sum is
// correct again.
func TestSaturateReservations(t *testing.T) {
	now := time.Now()
	r := &Reservations{Settle: time.Second}
	r.add("a", 7, now)
	one, two := r.add("a", math.MaxInt64, now), r.add("a", math.MaxInt64-3, now)
	three := r.add("a", math.MaxInt64, now)
	if got := r.sum("a"); got != math.MaxInt64 {
		t.Errorf("reserved %d", got)
	}
	r.Cancel(one)
	r.Cancel(three)
	if got := r.sum("a"); got != math.MaxInt64 {
		t.Errorf("reserved %d, after two are cancelled", got)
	}
	r.Cancel(two)
	if got := r.sum("a"); got != 7 {
		t.Errorf("reserved %d, want 7", got)
	}
	s, owner, _ := twoNodes(t)
	if _, res, err := r.Place(s, Request{Room: "r", Cost: math.MaxInt64 / 2}, 5); err == nil && res.units != math.MaxInt64 {
		t.Errorf("five times half of the greatest cost reserve %d units on %s", res.units, owner.ID)
	}
	for _, n := range []int64{1 << 62, math.MaxInt64} {
		for _, share := range []int{150, 1 << 40, math.MaxInt} {
			if got := Percent(n, share); got != math.MaxInt64 && got < n {
				t.Errorf("%d %% of %d overflows to %d", share, n, got)
			}
		}
	}
}
