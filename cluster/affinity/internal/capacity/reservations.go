package capacity

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Reservations holds the cost of rooms that were placed on nodes but are not part of their reported loads
// yet. Otherwise a burst of new rooms would all go to the node that is emptiest at that moment. Choosing a
// node and reserving the cost there is one step under the lock.
type Reservations struct {
	Limits Ceilings
	Settle time.Duration // how long a claim stays at least
	Keep   time.Duration // like Settle, on nodes that report no load

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

// Reservation identifies what was reserved, so that it can be cancelled. The zero value means no reservation.
type Reservation struct {
	node lease.NodeID
	claim
}

// Place chooses a node for the room and reserves a multiple of its cost there. If the node reports no load,
// it reserves only the cost, for the time Keep.
func (r *Reservations) Place(s *cluster.Snapshot, q Request, multiple int64) (Choice, Reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, err := choose(s, q, r.Limits, r.sum)
	if err != nil {
		return Choice{}, Reservation{}, err
	}
	if ReportsNoLoad(to.Member) {
		multiple = 1
	}
	return to, r.add(to.Member.ID, Times(q.Cost, multiple), time.Now()), nil
}

// PlaceOn reserves the room's cost on the given node, if its hard ceiling allows that.
func (r *Reservations) PlaceOn(m *cluster.Member, q Request) (Reservation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Candidate{Member: m, Reserved: r.sum(m.ID)}
	if m.Capacity > 0 && !c.belowHard(q, r.Limits) {
		return Reservation{}, false
	}
	return r.add(m.ID, q.Cost, time.Now()), true
}

// Explain returns every member's part in the choice of a node. If the room lives nowhere, it also returns the
// node that Place would choose with the same reservations.
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

// Cancel frees the reservation of a claim that did not take effect.
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

// Failed is Cancel, unless the claim may still take effect.
func (r *Reservations) Failed(res Reservation, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		r.Cancel(res)
	}
}

// Expire frees the reservations that should be part of the reported loads by now, because they were made at
// least Settle before the node's latest heartbeat. On a node that states a capacity but reports no load, they
// stay for Keep, and Expire returns the units that it then frees there. It costs O(members + freed
// reservations).
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
			reported = now.Add(-m.Age())
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

// merge limits the memory of claims that stay for long. It merges claims before the given time into one per
// span.
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

// Raise raises the reservations on a node to what all instances together have reserved there.
func (r *Reservations) Raise(id lease.NodeID, units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(id, units-r.sum(id), time.Now())
}

// add makes a reservation. The caller must hold mu.
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
