package capacity

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Candidate is a node that is considered for a room.
type Candidate struct {
	Member     *cluster.Member
	Reserved   int64  // units of rooms that the node's load does not show yet
	Ceiling    int64  // units up to which new rooms may fill the node; 0 = not set
	Preference int    // place in Demand.Prefer, from 1; 0 if Require, the Selector, the node's settings or its silence exclude the node
	Taken      bool   // the room lives on this node, or would be placed there
	Why        string // why the node was taken or not
}

// used returns the units that the node is known to carry.
func (c *Candidate) used() int64 { return Plus(max(0, c.Member.Load), c.Reserved) }

// with returns the units that the node would carry together with the room.
func (c *Candidate) with(q Request) int64 { return Plus(c.used(), q.Cost) }

// open reports whether the node has headroom or has no capacity set.
func (c *Candidate) open(q Request) bool { return c.Member.Capacity == 0 || c.with(q) <= c.Ceiling }

// belowHard reports whether the node would stay within its hard ceiling with the room. Without a hard ceiling
// it is always true.
func (c *Candidate) belowHard(q Request, limits Ceilings) bool {
	return limits.Hard == 0 || c.with(q) <= limits.HardOf(c.Member)
}

// HasRoom reports whether the node has headroom. HasRoom is false for a node that has no capacity set or
// reports no load.
func (c *Candidate) HasRoom(cost int64) bool {
	return c.Member.Capacity > 0 && !ReportsNoLoad(c.Member) && Plus(c.used(), cost) <= c.Ceiling
}

// share returns the load relative to the capacity.
func (c *Candidate) share() float64 { return float64(c.used()) / float64(c.Member.Capacity) }

// explain returns a Candidate for each member, with the reason why it was chosen or not. The result is only
// displayed, so explain need not be fast.
func explain(s *cluster.Snapshot, q Request, taken lease.NodeID, limits Ceilings, reserved func(lease.NodeID) int64) []Candidate {
	rank := ranking(s, q.Partition)
	list := make([]Candidate, 0, len(s.Members))
	for i, m := range s.Members {
		c := Candidate{
			Member:     m,
			Reserved:   reserved(m.ID),
			Ceiling:    limits.SoftOf(m),
			Taken:      m.ID == taken,
			Preference: q.Preferences.preference(i),
		}
		place, ranked := rank[m.ID]
		c.Why = c.why(q, ranked && place == 0)
		switch why := q.Bars(m); {
		case slices.Contains(q.Rejected, incarnationOf(m)):
			c.Preference, c.Why = 0, "accepts no rooms: "+why
		case why != "" && c.Preference > 0 && q.keeps(m):
			c.Why = "accepts new rooms only while no other node does: " + why
			if !c.Taken {
				c.Preference = 0
			}
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID))
	})
	return list
}

func (c *Candidate) why(q Request, owner bool) string {
	m := c.Member
	role := "does not own its partition"
	if owner {
		role = "owns its partition"
	}
	if preference := q.Preferences.name(c.Preference); preference != "" {
		role = preference + "; " + role
	}
	switch {
	case c.Preference == 0:
		return "excluded: " + q.Preferences.lacks[m.ID]
	case m.State != lease.Active:
		return fmt.Sprintf("accepts no rooms: %s", m.State)
	case m.Weight == 0:
		return "accepts no rooms: its weight is 0"
	case m.Capacity == 0:
		return role + "; capacity is not set, so it gets rooms only as owner"
	case ReportsNoLoad(m) && !owner:
		return role + "; reports no load, so it gets rooms only as owner"
	}
	if q.Pinned && c.Taken {
		return c.has(q)
	}
	return role + "; " + c.room(q)
}

// room describes the node's headroom for the room.
func (c *Candidate) room(q Request) string {
	headroom, load := "has headroom", ""
	if c.with(q) > c.Ceiling {
		headroom = "no headroom"
	}
	if ReportsNoLoad(c.Member) {
		load = " counting only rooms placed from here, because it reports no load"
	}
	return fmt.Sprintf("%s: carries %s of %s units%s, and the room costs %s",
		headroom, grouped(c.used()), grouped(c.Ceiling), load, grouped(q.Cost))
}

// has describes a node to which the room is already pinned. The node needs no additional headroom, because its load
// includes the room already, or will include it once the room is hosted.
func (c *Candidate) has(q Request) string {
	cost, used := grouped(q.Cost), grouped(c.used())
	switch {
	case !q.Here:
		return fmt.Sprintf("lives there: it costs %s units, and the node carries %s", cost, used)
	case !q.Hosted:
		return fmt.Sprintf("pinned here, and hosted once somebody joins: it costs %s units, and the node carries %s", cost, used)
	case q.Cost > c.used():
		return fmt.Sprintf("hosts it: it costs %s units, and the node reports %s", cost, used)
	default:
		return fmt.Sprintf("hosts it: %s of its %s units", cost, used)
	}
}
