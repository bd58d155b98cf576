package affinity

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Candidate is a node in the eyes of a Resolver that looks for a room's home.
type Candidate struct {
	Member   *cluster.Member
	Reserved int64  // units that were given away and do not show in its load yet
	Ceiling  int64  // units of its capacity that new rooms may fill; 0 = not stated
	Taken    bool   // this is the one
	Why      string // it was taken, or was not
}

// used is what the node carries as far as can be known.
func (c *Candidate) used() int64 { return max(0, c.Member.Load) + c.Reserved }

// question is what there is to know when a room needs a home.
type question struct {
	room      string
	partition placement.Partition
	size      int
	cost      int64
	stay      Pin // as it was when the store lost it, if it did
}

// choice is the answer.
type choice struct {
	member *cluster.Member
	source Source
	reason string
}

func (c *choice) life() lease.Incarnation {
	return lease.Incarnation{Node: c.member.ID, Number: c.member.Incarnation}
}

// ceilings are percentages of a node's capacity; hard is 0 if there is none.
type ceilings struct{ soft, hard int }

// choose finds a home: where the room lived, if the store lost its pin; else the
// owner of its partition, if that has headroom below the soft ceiling; else the
// least loaded node that has; else the least loaded one below the hard ceiling.
//
// A node that has not stated its capacity is full for nobody and an alternative
// for nobody. One that has not reported its load is no alternative either.
// O(nodes), and without an override free of allocation.
func choose(s *cluster.Snapshot, q question, limits ceilings, reserved func(lease.NodeID) int64) (choice, error) {
	if m := findLife(s, q.stay.Incarnation); m != nil && takesRooms(m) {
		return choice{m, sourceOf(s, q, m), "it lived here when the store lost its pin"}, nil
	}
	owner, ok := s.Table.Owner(q.partition)
	if !ok {
		return choice{}, cluster.ErrNoMembers
	}
	// The table may be a moment older than the members that it is read with.
	m := find(s, owner)
	if m != nil && !takesRooms(m) {
		m = nil
	}
	if m != nil {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.softOf(m)}
		if m.Capacity == 0 || c.used()+q.cost <= c.Ceiling {
			return choice{m, Hash, "it owns the room's partition"}, nil
		}
	}
	switch c, ok := override(s, q, limits, reserved); {
	case ok:
		return c, nil
	case limits.hard > 0:
		return choice{}, fmt.Errorf("%w for %d participants of %q, which cost %d units", ErrNoCapacity, q.size, q.room, q.cost)
	case m == nil:
		return choice{}, cluster.ErrNoMembers
	}
	return choice{m, Hash, "it owns the room's partition; no other node has stated its capacity and load"}, nil
}

// override finds the least loaded node that has headroom, else the least loaded
// one below the hard ceiling.
func override(s *cluster.Snapshot, q question, limits ceilings, reserved func(lease.NodeID) int64) (choice, bool) {
	var free, full []Candidate
	for i := range s.Members {
		m := &s.Members[i]
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.softOf(m)}
		switch {
		case !takesRooms(m) || m.Capacity == 0 || m.Load == lease.NoLoad:
		case c.used()+q.cost <= c.Ceiling:
			free = append(free, c)
		case limits.hard == 0 || c.used()+q.cost <= percent(m.Capacity, limits.hard):
			full = append(full, c)
		}
	}
	reason := "the owner of its partition has no headroom; this is the least loaded node that has"
	if len(free) == 0 {
		free, reason = full, "every node is above its ceiling; this is the least loaded one"
	}
	if len(free) == 0 {
		return choice{}, false
	}
	m := leastLoaded(free, ranking(s, q.partition))
	return choice{m, sourceOf(s, q, m), reason}, true
}

func sourceOf(s *cluster.Snapshot, q question, m *cluster.Member) Source {
	if owner, ok := s.Table.Owner(q.partition); ok && owner == m.ID {
		return Hash
	}
	return Override
}

// leastLoaded compares loads with capacities. Of equals it takes the one that is
// best for the room's partition: instances that see the same loads then take
// different nodes for different rooms.
func leastLoaded(candidates []Candidate, rank map[lease.NodeID]int) *cluster.Member {
	best := slices.MinFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.share(), b.share()),
			cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID)))
	})
	return best.Member
}

func (c *Candidate) share() float64 { return float64(c.used()) / float64(c.Member.Capacity) }

// explain tells of every member why it was taken for the room or was not. It is
// made for people and need not be fast.
func explain(s *cluster.Snapshot, q question, taken lease.NodeID, limits ceilings, reserved func(lease.NodeID) int64) []Candidate {
	rank := ranking(s, q.partition)
	list := make([]Candidate, 0, len(s.Members))
	for i := range s.Members {
		m := &s.Members[i]
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.softOf(m), Taken: m.ID == taken}
		c.Why = c.why(q, rankOr(rank, m.ID) == 0)
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID))
	})
	return list
}

func (c *Candidate) why(q question, owner bool) string {
	m := c.Member
	role := "no owner of its partition"
	if owner {
		role = "owns its partition"
	}
	switch {
	case m.State != lease.Active:
		return fmt.Sprintf("takes no rooms: it is %s", m.State)
	case m.Weight == 0:
		return "takes no rooms: its weight is 0"
	case m.Capacity == 0:
		return role + "; its capacity is not stated, so it can only take rooms as owner"
	case m.Load == lease.NoLoad && !owner:
		return role + "; it has not reported its load yet"
	case c.used()+q.cost > c.Ceiling:
		return fmt.Sprintf("%s; no headroom: it carries %d of %d units, and the room costs %d", role, c.used(), c.Ceiling, q.cost)
	}
	return fmt.Sprintf("%s; has headroom: it carries %d of %d units, and the room costs %d", role, c.used(), c.Ceiling, q.cost)
}

// ranking returns the place of each candidate of the table for a partition.
func ranking(s *cluster.Snapshot, p placement.Partition) map[lease.NodeID]int {
	rank := make(map[lease.NodeID]int)
	for i, id := range s.Table.Rank(p, len(s.Table.Nodes())) {
		rank[id] = i
	}
	return rank
}

func rankOr(rank map[lease.NodeID]int, id lease.NodeID) int {
	if i, ok := rank[id]; ok {
		return i
	}
	return len(rank)
}

func (l ceilings) softOf(m *cluster.Member) int64 { return percent(m.Capacity, l.soft) }

// percent does not overflow.
func percent(n int64, share int) int64 {
	return n/100*int64(share) + n%100*int64(share)/100
}

// takesRooms reports whether new rooms may be placed on a member.
func takesRooms(m *cluster.Member) bool { return m.State == lease.Active && m.Weight > 0 }

// find returns the live member of that id, or nil.
func find(s *cluster.Snapshot, id lease.NodeID) *cluster.Member {
	i, ok := slices.BinarySearchFunc(s.Members, id, func(m cluster.Member, id lease.NodeID) int {
		return cmp.Compare(m.ID, id)
	})
	if !ok {
		return nil
	}
	return &s.Members[i]
}

// findLife returns the member that life is, if it is live. A life later than the
// one that is known here has been heard of elsewhere first.
func findLife(s *cluster.Snapshot, life lease.Incarnation) *cluster.Member {
	if m := find(s, life.Node); m != nil && life.Number >= m.Incarnation {
		return m
	}
	return nil
}
