package affinity

import (
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// reservations holds the cost of rooms that were placed on nodes and are not yet
// part of their reported loads. Otherwise a burst of new rooms would all go to the
// node that is the emptiest for a moment. Choosing a node and reserving the cost
// there is one step under the lock.
type reservations struct {
	limits ceilings
	settle time.Duration

	mu    sync.Mutex
	nodes map[lease.NodeID]*reserved
}

type reserved struct {
	sum    int64
	claims []claim // by time
}

type claim struct {
	units int64
	at    time.Time
}

// reservation identifies what was reserved, so that it can be cancelled. The zero
// reservation is none.
type reservation struct {
	node lease.NodeID
	claim
}

// place chooses a node for the room and reserves a multiple of its cost there.
func (r *reservations) place(s *cluster.Snapshot, q request, times int64) (choice, reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, err := choose(s, q, r.limits, r.sum)
	if err != nil {
		return choice{}, reservation{}, err
	}
	return to, r.add(to.member.ID, q.cost*times, time.Now()), nil
}

// placeOn reserves the room's cost on a given node, if its hard ceiling allows.
func (r *reservations) placeOn(m *cluster.Member, q request) (reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Candidate{Member: m, Reserved: r.sum(m.ID)}
	if r.limits.hard > 0 && m.Capacity > 0 && c.used()+q.cost > percent(m.Capacity, r.limits.hard) {
		return reservation{}, false
	}
	return r.add(m.ID, q.cost, time.Now()), true
}

// explain returns every member's part in the choice of a node. If the room lives nowhere,
// it also returns the node that place would choose, from the same reservations.
func (r *reservations) explain(s *cluster.Snapshot, q request, node lease.NodeID) (to choice, list []Candidate, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if node == "" {
		if to, err = choose(s, q, r.limits, r.sum); err == nil {
			node = to.member.ID
		}
	}
	return to, explain(s, q, node, r.limits, r.sum), err
}

// cancel frees the reservation of a claim that did not take effect.
func (r *reservations) cancel(res reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[res.node]
	if n == nil {
		return
	}
	for i := len(n.claims) - 1; i >= 0; i-- {
		if c := &n.claims[i]; c.units == res.units && c.at.Equal(res.at) {
			n.sum -= c.units
			c.units = 0
			return
		}
	}
}

// expire frees the reservations that are part of the reported loads by now: those
// made at least settle before the node's latest heartbeat. O(members and freed
// reservations).
func (r *reservations) expire(s *cluster.Snapshot, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.nodes {
		reported := now
		if m := find(s, id); m != nil {
			reported = now.Add(-m.Age())
		}
		i := 0
		for i < len(n.claims) && !reported.Before(n.claims[i].at.Add(r.settle)) {
			n.sum -= n.claims[i].units
			i++
		}
		if n.claims = n.claims[i:]; len(n.claims) == 0 {
			delete(r.nodes, id)
		}
	}
}

// add makes a reservation. The caller holds mu.
func (r *reservations) add(id lease.NodeID, units int64, now time.Time) reservation {
	if units <= 0 {
		return reservation{}
	}
	n := r.nodes[id]
	if n == nil {
		if r.nodes == nil {
			r.nodes = make(map[lease.NodeID]*reserved)
		}
		n = new(reserved)
		r.nodes[id] = n
	}
	n.sum += units
	c := claim{units, now}
	n.claims = append(n.claims, c)
	return reservation{id, c}
}

// sum returns the units reserved on a node. The caller holds mu.
func (r *reservations) sum(id lease.NodeID) int64 {
	if n := r.nodes[id]; n != nil {
		return n.sum
	}
	return 0
}
