// Package capacity chooses nodes for rooms by headroom.
//
// A [Need] describes what a room needs, as recorded in its pin. [Preferences] specifies which members can
// have the room. [Reservations] chooses one of these members, based on the loads that the members report and
// the rooms placed on them since then. Each [Candidate] includes the reason why it was chosen or not.
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

// Package affinity exports these errors.
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
	Stay        pinstore.Pin   // the room's last pin, if the room should stay there although its pin is void or lost
	Leaves      []lease.NodeID // nodes that the room moves away from, if it moves

	// Rejected lists the nodes that cannot host rooms because their settings differ. Silent lists the nodes
	// that get no new rooms because this store has no heartbeats from them.
	Rejected, Silent []lease.Incarnation

	// Firm says that the units are promised to somebody, so the room only goes to a member with headroom.
	Firm bool

	// Relief, if it is not nil, says that the room moves away from an overloaded node. The room then only goes
	// to a member with headroom for which Relief returns true, because its reported load is recent.
	Relief func(*cluster.Member) bool

	// Pinned is set if the room already has a node, Here if that is this node, and Hosted if this node hosts the room.
	// Only Explain uses these fields.
	Pinned, Here, Hosted bool
}

// takes reports whether the room can be placed on a member.
func (q *Request) takes(m *cluster.Member) bool {
	return q.keeps(m) && !slices.Contains(q.Silent, incarnationOf(m))
}

// keeps reports whether the room can stay on a member.
func (q *Request) keeps(m *cluster.Member) bool {
	return TakesRooms(m) && !slices.Contains(q.Leaves, m.ID) && !slices.Contains(q.Rejected, incarnationOf(m))
}

// Bars returns why an active member gets no new rooms, or "".
func (q *Request) Bars(m *cluster.Member) string {
	switch at := incarnationOf(m); {
	case slices.Contains(q.Rejected, at):
		return "its settings differ from other nodes"
	case slices.Contains(q.Silent, at):
		return "it sends no heartbeats to this store"
	}
	return ""
}

func incarnationOf(m *cluster.Member) lease.Incarnation {
	return lease.Incarnation{Node: m.ID, Number: m.Incarnation}
}

// owner returns the highest-ranked member that takes the room, or nil. The table may be a moment older than
// the members. If the table's owner has just left or died, the next member in rank will be the owner in the
// next table.
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

// owns reports whether a member is the owner that q.owner returns.
func (q *Request) owns(s *cluster.Snapshot, m *cluster.Member) bool { return q.owner(s) == m }

// Choice is the node for a request.
type Choice struct {
	Member  *cluster.Member
	Owns    bool // the member is the highest-ranked member that takes the room
	Crowded bool // the room fills the member above its soft ceiling, because no member has headroom
	Reason  string
}

// Incarnation returns the member's incarnation.
func (c *Choice) Incarnation() lease.Incarnation {
	return lease.Incarnation{Node: c.Member.ID, Number: c.Member.Incarnation}
}

// Ceilings are percentages of a node's capacity. Hard is 0 if there is no hard ceiling.
type Ceilings struct{ Soft, Hard int }

// SoftOf returns a member's soft ceiling in units.
func (l Ceilings) SoftOf(m *cluster.Member) int64 { return Percent(m.Capacity, l.Soft) }

// HardOf returns a member's hard ceiling in units.
func (l Ceilings) HardOf(m *cluster.Member) int64 { return Percent(m.Capacity, l.Hard) }

// choose calls pick. If only silent members can take a new room, one of them gets it, because a room without
// a node is worse than a room whose node may not reach the store. If a room is moved on request, choose never
// returns a silent member.
func choose(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	c, err := pick(s, q, limits, reserved)
	if !q.needsSilent(err) {
		return c, err
	}
	silent := q.Silent
	q.Silent = nil
	if c, err = pick(s, q, limits, reserved); err == nil && slices.Contains(silent, c.Incarnation()) {
		c.Reason += "; it sends no heartbeats to this store, but no other node accepts the room"
	}
	return c, err
}

// needsSilent reports whether a choice failed with err but could succeed with silent members.
func (q *Request) needsSilent(err error) bool {
	return len(q.Silent) > 0 && len(q.Leaves) == 0 && (errors.Is(err, cluster.ErrNoMembers) || errors.Is(err, ErrRequire))
}

// Best returns the best node by the room's preferences. Best ignores loads, so that instances agree on the
// node without the store. Best returns a silent node if the preferences allow no other node.
func Best(s *cluster.Snapshot, q Request) (*cluster.Member, error) {
	m, err := q.Preferences.best(s, q)
	if q.needsSilent(err) {
		q.Silent = nil
		m, err = q.Preferences.best(s, q)
	}
	return m, err
}

// pick returns the first of these nodes that exists: the node where the room lived before (see Request.Stay), the owner
// of the room's partition if it has headroom below the soft ceiling, the least loaded node with headroom, or the least
// loaded node below the hard ceiling.
//
// A node without a capacity always has headroom as owner, but takes no other rooms. A node that has not reported its
// load takes no other rooms, either. pick has no side effects. pick costs O(nodes), and only allocates if it picks a
// node other than the owner.
func pick(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	if m := liveness.Live(s, q.Stay.Incarnation); m != nil && q.keeps(m) {
		return Choice{Member: m, Owns: q.owns(s, m), Reason: "the room lived here before"}, nil
	}
	if q.Relief != nil {
		return relieve(s, q, limits, reserved)
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
			return Choice{Member: m, Owns: true, Reason: "owns the room's partition"}, nil
		}
	}
	switch c, ok := override(s, q, limits, reserved); {
	case ok:
		return c, nil
	case limits.Hard > 0:
		return Choice{}, fmt.Errorf("%w for %v in %q, which cost %d units", ErrNoCapacity, q.Need, q.Room, q.Cost)
	case m == nil:
		return Choice{}, fmt.Errorf("%w yet: the members that could own partitions have just joined; try again in a second", cluster.ErrNoMembers)
	}
	return Choice{m, true, true, "owns the room's partition; no other node reports capacity and load"}, nil
}

// nobody returns an error that explains why no member takes the room.
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
		return fmt.Errorf("%w for %q: of %d active nodes, the room is leaving %d, %d have different settings for rooms, and %d send no heartbeats to this store; start another node",
			cluster.ErrNoMembers, q.Room, leaves+rejected+silent, leaves, rejected, silent)
	}
	if len(s.Table.Nodes()) == 0 {
		if _, err := s.Place(q.Room); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w any more: the last members have just stopped or are draining; undrain a node or start another node", cluster.ErrNoMembers)
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
	crowded := len(free) == 0
	if crowded {
		free, reason = full, "no node has headroom for it below its ceiling; this is the least loaded node"
	}
	if len(free) == 0 {
		return Choice{}, false
	}
	if q.owner(s) == nil {
		reason = "its partition has no owner; this is the least loaded node"
	}
	m := leastLoaded(free, ranking(s, q.Partition))
	return Choice{m, q.owns(s, m), crowded, reason}, true
}

// relieve picks the least loaded node with headroom for a room of an overloaded node, among the nodes of the
// earliest possible preference.
func relieve(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	var free []Candidate
	for i, m := range s.Members {
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.SoftOf(m), Preference: q.Preferences.preference(i)}
		if c.Preference == 0 || !q.takes(m) || !q.Relief(m) || !c.HasRoom(q.Cost) {
			continue
		}
		if len(free) > 0 && c.Preference < free[0].Preference {
			free = free[:0]
		}
		if len(free) == 0 || c.Preference == free[0].Preference {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		return Choice{}, fmt.Errorf("%w to relieve a node of %q, which costs %d units", ErrNoCapacity, q.Room, q.Cost)
	}
	m := leastLoaded(free, ranking(s, q.Partition))
	return Choice{Member: m, Owns: q.owns(s, m), Reason: "the least loaded node with headroom"}, nil
}

// leastLoaded returns the candidate with the smallest load relative to its capacity. If loads are equal, it
// returns the node that ranks higher for the room's partition. So rooms of different partitions get different
// nodes even if all loads are equal.
func leastLoaded(candidates []Candidate, rank map[lease.NodeID]int) *cluster.Member {
	best := slices.MinFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.share(), b.share()),
			cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID)))
	})
	return best.Member
}

// ranking returns the rank of each node of the table for a partition, from 0.
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

// TakesRooms reports whether new rooms can be placed on a member.
func TakesRooms(m *cluster.Member) bool { return m.State == lease.Active && m.Weight > 0 }

// ReportsNoLoad reports whether a member has a capacity but reports no load.
func ReportsNoLoad(m *cluster.Member) bool { return m.Capacity > 0 && m.Load == lease.NoLoad }
