package affinity

import (
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// reservations are the costs of rooms that were given to nodes and do not show
// in their loads yet, so that a burst of new rooms does not all go to the node
// that was the emptiest for a moment. Owned by Resolver.mu.
type reservations struct {
	settle time.Duration
	nodes  map[lease.NodeID]*reserved
}

type reserved struct {
	sum   int64
	claim []claim // by time
}

type claim struct {
	units int64
	at    time.Time
}

func (r *reservations) add(id lease.NodeID, units int64, now time.Time) {
	if units <= 0 {
		return
	}
	n := r.nodes[id]
	if n == nil {
		n = new(reserved)
		r.nodes[id] = n
	}
	n.sum += units
	n.claim = append(n.claim, claim{units, now})
}

// cancel takes back what add did.
func (r *reservations) cancel(id lease.NodeID, units int64, at time.Time) {
	n := r.nodes[id]
	if n == nil {
		return
	}
	for i := len(n.claim) - 1; i >= 0; i-- {
		if c := &n.claim[i]; c.units == units && c.at.Equal(at) {
			n.sum -= units
			c.units = 0
			return
		}
	}
}

func (r *reservations) of(id lease.NodeID) int64 {
	if n := r.nodes[id]; n != nil {
		return n.sum
	}
	return 0
}

// expire drops what the nodes' loads show by now: those of claims that were made
// at least settle before the node's latest heartbeat. O(members and claims that
// are dropped).
func (r *reservations) expire(s *cluster.Snapshot, now time.Time) {
	for id, n := range r.nodes {
		reported := now
		if m := find(s, id); m != nil {
			reported = now.Add(-m.Age())
		}
		i := 0
		for i < len(n.claim) && !reported.Before(n.claim[i].at.Add(r.settle)) {
			n.sum -= n.claim[i].units
			i++
		}
		if n.claim = n.claim[i:]; len(n.claim) == 0 {
			delete(r.nodes, id)
		}
	}
}
