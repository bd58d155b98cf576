package affinity

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Candidate is a node that a Resolver considers for a room.
type Candidate struct {
	Member   *cluster.Member
	Reserved int64  // units of rooms that its load does not show yet
	Ceiling  int64  // units of its capacity that new rooms may fill; 0 = not set
	Taken    bool   // the room lives here, or would
	Why      string // it was taken, or not
}

// used returns the units that the node carries as far as is known.
func (c *Candidate) used() int64 { return max(0, c.Member.Load) + c.Reserved }

// request is a room that needs a node.
type request struct {
	room      string
	partition placement.Partition
	size      int
	cost      int64
	stay      Pin // the room's pin before the store lost it, if it did
}

// choice is the node for a request.
type choice struct {
	member *cluster.Member
	source Source
	reason string
}

func (c *choice) incarnation() lease.Incarnation { return incarnationOf(c.member) }

// ceilings are percentages of a node's capacity; hard is 0 if there is none.
type ceilings struct{ soft, hard int }

// choose picks the node where the room lived before the store lost its pin;
// otherwise the owner of its partition, if it has headroom below the soft ceiling;
// otherwise the least loaded node with headroom; otherwise the least loaded node below
// the hard ceiling.
//
// A node without a stated capacity always has headroom as owner, and takes no other
// rooms. A node that has not reported its load takes no other rooms, either. choose
// is pure. O(nodes), and without an override free of allocation.
func choose(s *cluster.Snapshot, q request, limits ceilings, reserved func(lease.NodeID) int64) (choice, error) {
	if m := findLive(s, q.stay.Incarnation); m != nil && takesRooms(m) {
		return choice{m, sourceOf(s, q, m), "the room lived here before the store lost its pin"}, nil
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
			return choice{m, Hash, "owns the room's partition"}, nil
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
	return choice{m, Hash, "owns the room's partition; no other node reports capacity and load"}, nil
}

// override picks the least loaded node with headroom, otherwise the least loaded node
// below the hard ceiling.
func override(s *cluster.Snapshot, q request, limits ceilings, reserved func(lease.NodeID) int64) (choice, bool) {
	var free, full []Candidate
	for _, m := range s.Members {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.softOf(m)}
		switch {
		case !takesRooms(m) || m.Capacity == 0 || m.Load == lease.NoLoad:
		case c.used()+q.cost <= c.Ceiling:
			free = append(free, c)
		case limits.hard == 0 || c.used()+q.cost <= percent(m.Capacity, limits.hard):
			full = append(full, c)
		}
	}
	reason := "the owner of its partition has no headroom; this is the least loaded node with headroom"
	if len(free) == 0 {
		free, reason = full, "every node is above its ceiling; this is the least loaded node"
	}
	if len(free) == 0 {
		return choice{}, false
	}
	m := leastLoaded(free, ranking(s, q.partition))
	return choice{m, sourceOf(s, q, m), reason}, true
}

func sourceOf(s *cluster.Snapshot, q request, m *cluster.Member) Source {
	if owner, ok := s.Table.Owner(q.partition); ok && owner == m.ID {
		return Hash
	}
	return Override
}

// leastLoaded compares loads relative to capacities. Ties go to the better node for
// the room's partition: instances that see the same loads then pick different nodes
// for different rooms.
func leastLoaded(candidates []Candidate, rank map[lease.NodeID]int) *cluster.Member {
	best := slices.MinFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.share(), b.share()),
			cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID)))
	})
	return best.Member
}

func (c *Candidate) share() float64 { return float64(c.used()) / float64(c.Member.Capacity) }

// explain says for each member why it was taken for the room, or not. It is for
// people and need not be fast.
func explain(s *cluster.Snapshot, q request, taken lease.NodeID, limits ceilings, reserved func(lease.NodeID) int64) []Candidate {
	rank := ranking(s, q.partition)
	list := make([]Candidate, 0, len(s.Members))
	for _, m := range s.Members {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.softOf(m), Taken: m.ID == taken}
		c.Why = c.why(q, rankOr(rank, m.ID) == 0)
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID))
	})
	return list
}

func (c *Candidate) why(q request, owner bool) string {
	m := c.Member
	role := "does not own its partition"
	if owner {
		role = "owns its partition"
	}
	switch {
	case m.State != lease.Active:
		return fmt.Sprintf("takes no rooms: %s", m.State)
	case m.Weight == 0:
		return "takes no rooms: weight is 0"
	case m.Capacity == 0:
		return role + "; capacity is not set, so it takes rooms only as owner"
	case m.Load == lease.NoLoad && !owner:
		return role + "; load is not known yet"
	case c.used()+q.cost > c.Ceiling:
		return fmt.Sprintf("%s; no headroom: carries %d of %d units, and the room costs %d", role, c.used(), c.Ceiling, q.cost)
	}
	return fmt.Sprintf("%s; has headroom: carries %d of %d units, and the room costs %d", role, c.used(), c.Ceiling, q.cost)
}

// ranking returns the rank of each candidate of the table for a partition.
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

// percent returns share percent of n, without overflow.
func percent(n int64, share int) int64 {
	return n/100*int64(share) + n%100*int64(share)/100
}

// takesRooms reports whether new rooms may be placed on a member.
func takesRooms(m *cluster.Member) bool { return m.State == lease.Active && m.Weight > 0 }

// find returns the live member of that id, or nil.
func find(s *cluster.Snapshot, id lease.NodeID) *cluster.Member {
	i, ok := slices.BinarySearchFunc(s.Members, id, func(m *cluster.Member, id lease.NodeID) int {
		return cmp.Compare(m.ID, id)
	})
	if !ok {
		return nil
	}
	return s.Members[i]
}

// findLive returns the member of that incarnation, if it is live. An incarnation later
// than the one known here has reached another node first, and is live, too.
func findLive(s *cluster.Snapshot, at lease.Incarnation) *cluster.Member {
	if m := find(s, at.Node); m != nil && at.Number >= m.Incarnation {
		return m
	}
	return nil
}
