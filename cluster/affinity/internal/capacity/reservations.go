package capacity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Reservations tracks the cost of rooms that were placed on nodes but are not part of the nodes' reported
// loads yet. Without reservations, all rooms of a burst would go to the node that has the smallest load at
// that moment. Reservations chooses a node and reserves the cost there in one step under its lock.
type Reservations struct {
	Limits Ceilings
	Settle time.Duration // minimum lifetime of a reservation
	Keep   time.Duration // lifetime of a reservation on a node that reports no load

	// Now is the clock. Default time.Now.
	Now func() time.Time

	mu    sync.Mutex
	nodes map[lease.NodeID]*reserved
}

type reserved struct {
	sum    total
	claims []claim // by time
}

type claim struct {
	units int64
	at    time.Time
}

// Reservation identifies a reservation, so that it can be cancelled. The zero value means no reservation.
type Reservation struct {
	node lease.NodeID
	claim
}

// Place chooses a node for the room and reserves a multiple of the room's cost there. If the node reports no
// load, Place ignores multiple, because the reservation lasts for Keep.
func (r *Reservations) Place(s *cluster.Snapshot, q Request, multiple int64) (Choice, Reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, err := choose(s, q, r.Limits, r.sum)
	if err == nil && to.Crowded && q.Firm {
		err = fmt.Errorf("%w: no node has headroom for %v in %q", ErrNoCapacity, q.Need, q.Room)
	}
	if err != nil {
		return Choice{}, Reservation{}, err
	}
	if ReportsNoLoad(to.Member) {
		multiple = 1
	}
	return to, r.add(to.Member.ID, Times(q.Cost, multiple), r.now()), nil
}

// PlaceOn reserves the room's cost on the given node. PlaceOn returns false if the room would exceed the
// node's hard ceiling, or with Request.Firm its soft ceiling.
func (r *Reservations) PlaceOn(m *cluster.Member, q Request) (Reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Candidate{Member: m, Reserved: r.sum(m.ID), Ceiling: r.Limits.SoftOf(m)}
	if m.Capacity > 0 && !c.belowHard(q, r.Limits) || q.Firm && !c.open(q) {
		return Reservation{}, false
	}
	return r.add(m.ID, q.Cost, r.now()), true
}

// Headroom returns the greatest headroom among the members that can take rooms from an overloaded node. A room that
// costs more than that cannot be moved.
func (r *Reservations) Headroom(s *cluster.Snapshot, q Request) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	greatest := int64(0)
	for _, m := range s.Members {
		if q.takes(m) && q.Relief(m) {
			greatest = max(greatest, r.headroom(m))
		}
	}
	return greatest
}

// HeadroomOf returns the units that new rooms can add to a member before it reaches its soft ceiling.
// HeadroomOf returns 0 for a member that has no capacity set or reports no load.
func (r *Reservations) HeadroomOf(m *cluster.Member) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headroom(m)
}

// headroom is HeadroomOf for a caller that holds mu.
func (r *Reservations) headroom(m *cluster.Member) int64 {
	c := Candidate{Member: m, Reserved: r.sum(m.ID), Ceiling: r.Limits.SoftOf(m)}
	if !c.HasRoom(0) {
		return 0
	}
	return c.Ceiling - c.used()
}

// Explain returns a Candidate for each member. If node is empty, because the room has no node yet, Explain
// also returns the node that Place would choose with the same reservations.
func (r *Reservations) Explain(s *cluster.Snapshot, q Request, node lease.NodeID) (to Choice, list []Candidate, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if node == "" {
		if to, err = choose(s, q, r.Limits, r.sum); err == nil {
			node = to.Member.ID
		}
	}
	return to, explain(s, q, node, r.Limits, r.sum), err
}

// Cancel releases the reservation of a claim that did not take effect.
func (r *Reservations) Cancel(res Reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[res.node]
	if n == nil {
		return
	}
	for i := len(n.claims) - 1; i >= 0; i-- {
		if c := &n.claims[i]; c.units == res.units && c.at.Equal(res.at) {
			n.sum.reduce(c.units)
			c.units = 0
			return
		}
	}
}

// Failed releases the reservation of a claim that failed with err. Failed keeps the reservation after a
// timeout, because the claim may still take effect.
func (r *Reservations) Failed(res Reservation, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		r.Cancel(res)
	}
}

// Expire releases the reservations that were made at least Settle before the node's latest heartbeat, because
// the reported load should include them by now. If a node has a capacity but reports no load, its
// reservations stay for Keep. For such nodes, Expire returns the units that it has released. Expire costs
// O(members + released reservations).
func (r *Reservations) Expire(s *cluster.Snapshot, now time.Time) (unseen map[lease.NodeID]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.nodes {
		reported, last := now, r.Settle
		m, _ := s.Member(id)
		mute := m != nil && ReportsNoLoad(m)
		switch {
		case mute:
			last = r.Keep
			n.merge(now.Add(-r.Settle), r.Keep/64)
		case m != nil:
			reported = m.Renewed
		}
		i := 0
		var freed total
		for i < len(n.claims) && !reported.Before(n.claims[i].at.Add(last)) {
			n.sum.reduce(n.claims[i].units)
			freed.add(n.claims[i].units)
			i++
		}
		if n.claims = n.claims[i:]; len(n.claims) == 0 {
			delete(r.nodes, id)
		}
		if mute && freed.units() > 0 {
			if unseen == nil {
				unseen = make(map[lease.NodeID]int64)
			}
			unseen[id] = freed.units()
		}
	}
	return unseen
}

// merge limits the memory for claims with a long lifetime. If several claims within one span were made before
// the given time, they become one claim.
func (n *reserved) merge(before time.Time, span time.Duration) {
	if len(n.claims) == 0 {
		return
	}
	kept := n.claims[:1]
	for _, c := range n.claims[1:] {
		last := &kept[len(kept)-1]
		if sum := Plus(last.units, c.units); c.at.Before(before) && c.at.Sub(last.at) < span && sum < math.MaxInt64 {
			last.units = sum
		} else {
			kept = append(kept, c)
		}
	}
	clear(n.claims[len(kept):])
	n.claims = kept
}

// Raise raises the reservations on a node to units, which is what all instances together have reserved there.
func (r *Reservations) Raise(id lease.NodeID, units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(id, units-r.sum(id), r.now())
}

func (r *Reservations) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// add reserves units on a node. The caller must hold mu.
func (r *Reservations) add(id lease.NodeID, units int64, now time.Time) Reservation {
	if units <= 0 {
		return Reservation{}
	}
	n := r.nodes[id]
	if n == nil {
		if r.nodes == nil {
			r.nodes = make(map[lease.NodeID]*reserved)
		}
		n = new(reserved)
		r.nodes[id] = n
	}
	n.sum.add(units)
	c := claim{units, now}
	n.claims = append(n.claims, c)
	return Reservation{id, c}
}

// sum returns the units reserved on a node. The caller must hold mu.
func (r *Reservations) sum(id lease.NodeID) int64 {
	if n := r.nodes[id]; n != nil {
		return n.sum.units()
	}
	return 0
}
