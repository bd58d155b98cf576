// Package capacity picks the nodes for rooms by headroom.
//
// A [Need] is what a room needs, as recorded in its pin. [Preferences] say which members may have the room,
// and [Reservations] picks one of them, based on the loads that the members report and what was placed on
// them since then. Each [Candidate] says why it was picked or not.
package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The errors of package affinity.
var (
	ErrRequire    = errors.New("affinity: no node meets the requirement")
	ErrNoCapacity = errors.New("affinity: no node has the capacity")
)

// Request is a room that needs a node.
type Request struct {
	Room        string
	Partition   placement.Partition
	Need        Need
	Cost        int64
	Preferences *Preferences   // nil: anywhere
	Stay        pinstore.Pin   // the room's last pin, if it is void or the store has lost it
	Leaves      []lease.NodeID // nodes that the room moves away from, if it moves

	// Rejected are nodes that host no rooms because their settings differ. Silent are nodes that get no new
	// rooms because this store has no heartbeats of them.
	Rejected, Silent []lease.Incarnation
}

// takes reports whether the room may be placed on a member.
func (q *Request) takes(m *cluster.Member) bool {
	return q.keeps(m) && !slices.Contains(q.Silent, incarnationOf(m))
}

// keeps reports whether the room may stay on a member.
func (q *Request) keeps(m *cluster.Member) bool {
	return TakesRooms(m) && !slices.Contains(q.Leaves, m.ID) && !slices.Contains(q.Rejected, incarnationOf(m))
}

// Bars returns why an active member gets no new rooms, or "".
func (q *Request) Bars(m *cluster.Member) string {
	switch at := incarnationOf(m); {
	case slices.Contains(q.Rejected, at):
		return "its settings differ from those of other nodes"
	case slices.Contains(q.Silent, at):
		return "it sends no heartbeats to this store"
	}
	return ""
}

func incarnationOf(m *cluster.Member) lease.Incarnation {
	return lease.Incarnation{Node: m.ID, Number: m.Incarnation}
}

// owner returns the member that is first in line for the room, or nil. The table may be a moment older than
// the members. If its owner has just ended, the next in line is the owner in the next table.
func (q *Request) owner(s *cluster.Snapshot) *cluster.Member {
	owner, ok := s.Table.Owner(q.Partition)
	if !ok {
		return nil
	}
	if m, live := s.Member(owner); live && q.takes(m) {
		return m
	}
	for _, id := range s.Table.Rank(q.Partition, len(s.Table.Nodes())) {
		if m, live := s.Member(id); live && q.takes(m) {
			return m
		}
	}
	return nil
}

// owns reports whether a member is first in line for the room.
func (q *Request) owns(s *cluster.Snapshot, m *cluster.Member) bool { return q.owner(s) == m }

// Choice is the node for a request.
type Choice struct {
	Member *cluster.Member
	Owns   bool // the member owns the room's partition, or is next in line for a room that leaves its owner
	Reason string
}

// Incarnation returns the member's incarnation.
func (c *Choice) Incarnation() lease.Incarnation {
	return lease.Incarnation{Node: c.Member.ID, Number: c.Member.Incarnation}
}

// Ceilings are percentages of a node's capacity; Hard is 0 if there is none.
type Ceilings struct{ Soft, Hard int }

// SoftOf returns the units up to which a member gets new rooms.
func (l Ceilings) SoftOf(m *cluster.Member) int64 { return percent(m.Capacity, l.Soft) }

// HardOf returns the units above which a member gets no new room.
func (l Ceilings) HardOf(m *cluster.Member) int64 { return percent(m.Capacity, l.Hard) }

// choose picks a node like pick. If no other member may have a new room, a silent member gets it, because a
// room without a node is worse than a room that the silent member may have to find without its store. A room
// that would have to move to a silent member stays instead.
func choose(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	c, err := pick(s, q, limits, reserved)
	if !q.needsSilent(err) {
		return c, err
	}
	silent := q.Silent
	q.Silent = nil
	if c, err = pick(s, q, limits, reserved); err == nil && slices.Contains(silent, c.Incarnation()) {
		c.Reason += "; it sends no heartbeats to this store, but no other node takes the room"
	}
	return c, err
}

// needsSilent reports whether a choice failed with err but silent members may take the room.
func (q *Request) needsSilent(err error) bool {
	return len(q.Silent) > 0 && len(q.Leaves) == 0 && (errors.Is(err, cluster.ErrNoMembers) || errors.Is(err, ErrRequire))
}

// Best returns the best node by the room's preferences, no matter its load, so that instances without the
// store agree on it. It returns a silent node if the preferences allow no other.
func Best(s *cluster.Snapshot, q Request) (*cluster.Member, error) {
	m, err := q.Preferences.best(s, q)
	if q.needsSilent(err) {
		q.Silent = nil
		m, err = q.Preferences.best(s, q)
	}
	return m, err
}

// pick picks the first of these that exists: the node where the room lived before (see Request.Stay), the
// owner of its partition if it has headroom below the soft ceiling, the least loaded node with headroom, the
// least loaded node below the hard ceiling.
//
// A node that states no capacity always has headroom as owner, but takes no other rooms. A node that has not
// reported its load takes no other rooms, either. pick is pure. It costs O(nodes), and only allocates if it
// picks another node than the owner.
func pick(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	if m := liveness.Live(s, q.Stay.Incarnation); m != nil && q.keeps(m) {
		return Choice{m, q.owns(s, m), "the room lived here before"}, nil
	}
	m := q.owner(s)
	switch {
	case m == nil && !slices.ContainsFunc(s.Members, q.takes):
		return Choice{}, q.nobody(s)
	case q.Preferences != nil:
		return byPreference(s, q, limits, reserved)
	}
	if m != nil {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.SoftOf(m)}
		if c.open(q) {
			return Choice{m, true, "owns the room's partition"}, nil
		}
	}
	switch c, ok := override(s, q, limits, reserved); {
	case ok:
		return c, nil
	case limits.Hard > 0:
		return Choice{}, fmt.Errorf("%w for %v of %q, which cost %d units", ErrNoCapacity, q.Need, q.Room, q.Cost)
	case m == nil:
		return Choice{}, fmt.Errorf("%w yet: the members that could have just joined; try again in a second", cluster.ErrNoMembers)
	}
	return Choice{m, true, "owns the room's partition; no other node reports capacity and load"}, nil
}

// nobody returns why no member takes the room.
func (q *Request) nobody(s *cluster.Snapshot) error {
	var leaves, rejected, silent int
	for _, m := range s.Members {
		switch {
		case !TakesRooms(m):
		case slices.Contains(q.Leaves, m.ID):
			leaves++
		case slices.Contains(q.Rejected, incarnationOf(m)):
			rejected++
		default:
			silent++
		}
	}
	if leaves+rejected+silent > 0 {
		return fmt.Errorf("%w for %q: of %d active nodes, the room moves away from %d, %d have other settings for rooms, and %d send no heartbeats to this store; start another node",
			cluster.ErrNoMembers, q.Room, leaves+rejected+silent, leaves, rejected, silent)
	}
	if len(s.Table.Nodes()) == 0 {
		if _, err := s.Place(q.Room); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w any more: the last ones have just ended or drain; undrain a node or start another", cluster.ErrNoMembers)
}

// override picks the least loaded node with headroom, or else the least loaded node below the hard ceiling.
func override(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, bool) {
	var free, full []Candidate
	for _, m := range s.Members {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.SoftOf(m)}
		switch {
		case !q.takes(m) || m.Capacity == 0 || ReportsNoLoad(m):
		case c.with(q) <= c.Ceiling:
			free = append(free, c)
		case c.belowHard(q, limits):
			full = append(full, c)
		}
	}
	reason := "the owner of its partition has no headroom; this is the least loaded node with headroom"
	if len(free) == 0 {
		free, reason = full, "every node is above its ceiling; this is the least loaded node"
	}
	if len(free) == 0 {
		return Choice{}, false
	}
	if q.owner(s) == nil {
		reason = "its partition has no owner; this is the least loaded node"
	}
	m := leastLoaded(free, ranking(s, q.Partition))
	return Choice{m, q.owns(s, m), reason}, true
}

// leastLoaded compares loads relative to capacities. Ties go to the better node for the room's partition, so
// that instances that see the same loads pick different nodes for different rooms.
func leastLoaded(candidates []Candidate, rank map[lease.NodeID]int) *cluster.Member {
	best := slices.MinFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.share(), b.share()),
			cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID)))
	})
	return best.Member
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

// TakesRooms reports whether new rooms may be placed on a member.
func TakesRooms(m *cluster.Member) bool { return m.State == lease.Active && m.Weight > 0 }

// ReportsNoLoad reports whether a member states a capacity but reports no load.
func ReportsNoLoad(m *cluster.Member) bool { return m.Capacity > 0 && m.Load == lease.NoLoad }
