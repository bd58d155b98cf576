package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// LostFor is how long snapshots list a member after it is no longer live.
const LostFor = 30 * time.Minute

// maxLost is the maximum number of lost members in a snapshot.
const maxLost = 256

// Lost is a member that is no longer live and has not returned.
type Lost struct {
	*Member    // the member as this node last knew it
	Reason     lease.Reason
	At         time.Time // when this node learned of the loss, according to its clock
	Partitions int       // number of partitions that the member owned at that time
}

// Left reports whether the member sent a leave message. Then it was not lost.
func (l *Lost) Left() bool { return l.Reason == lease.Departed }

// Lost returns the members that were lost or left within LostFor and have not returned: at most 256, latest
// first. Lost only contains members that were lost or left after the start of this node.
func (s *Snapshot) Lost() []Lost {
	for i := range s.lost {
		if time.Since(s.lost[i].At) > LostFor {
			return s.lost[:i]
		}
	}
	return s.lost
}

// fillLost adds the members in gone to the lost members of old, and removes members that are live again.
func (s *Snapshot) fillLost(old *Snapshot, gone []Lost) {
	if s.lost = old.lost; s.State == old.State || old.State == nil {
		return
	}
	gone = gone[:min(len(gone), maxLost)]
	back := func(l Lost) bool { return s.isLive(l.ID) }
	if len(gone) == 0 && !slices.ContainsFunc(s.lost, back) {
		return
	}
	s.lost = slices.DeleteFunc(slices.Concat(gone, old.lost), back)
	s.lost = s.lost[:min(len(s.lost), maxLost)]
}

// goneSince returns the members that were live in old and are no longer live. goneSince makes only one pass over the
// table, because thousands of members may be lost at the same time.
func (s *Snapshot) goneSince(old *Snapshot, now time.Time) (gone []Lost) {
	if s.State == old.State || old.State == nil {
		return nil
	}
	gone = slices.Grow(gone, max(0, len(old.State.Members)-len(s.State.Members)))
	var owned []int // number of owned partitions, by index into the old table's nodes
	nodes, live := old.State.Table.Nodes(), s.State.Members
	for _, was := range old.State.Members {
		for len(live) > 0 && live[0].Node < was.Node {
			live = live[1:]
		}
		if len(live) > 0 && live[0].Node == was.Node {
			continue
		}
		if owned == nil {
			owned = partitionsOf(old.State.Table)
		}
		lost := Lost{Member: old.lastOf(was), Reason: endOf(s.State, was), At: now}
		if i, ok := slices.BinarySearchFunc(nodes, was.Node, func(n placement.Node, id lease.NodeID) int { return cmp.Compare(n.ID, id) }); ok {
			lost.Partitions = owned[i]
		}
		gone = append(gone, lost)
	}
	return gone
}

func (s *Snapshot) isLive(id lease.NodeID) bool {
	_, ok := slices.BinarySearchFunc(s.State.Members, id, func(m lease.Incarnation, id lease.NodeID) int { return cmp.Compare(m.Node, id) })
	return ok
}

// fillParting keeps the last known data of members that are no longer live, or were replaced, until the next
// State no longer lists them. The table is not enough, because a member that leaves drains first, so the table no longer
// includes it.
func (s *Snapshot) fillParting(old *Snapshot) {
	if s.State == nil {
		return
	}
	live, was, parting := s.Members, old.Members, old.parting
	for _, m := range s.State.Members {
		if next(&live, m.Node).is(m) {
			continue
		}
		for _, last := range []*Member{next(&was, m.Node), next(&parting, m.Node)} {
			if last.is(m) {
				s.parting = append(s.parting, last)
				break
			}
		}
	}
}

// is reports whether m is this incarnation. m may be nil.
func (m *Member) is(i lease.Incarnation) bool { return m != nil && m.Incarnation == i.Number }

// lastOf returns a copy of what the snapshot knows about a member, which may already be gone. lastOf copies
// the member because all members of a snapshot share one allocation. A pointer to one member would keep the
// whole allocation in memory.
func (s *Snapshot) lastOf(i lease.Incarnation) *Member {
	for _, members := range [][]*Member{s.Members, s.parting, s.owners} {
		if at, ok := slices.BinarySearchFunc(members, i.Node, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) }); ok {
			m := *members[at]
			return &m
		}
	}
	return &Member{Profile: lease.Profile{ID: i.Node, Incarnation: i.Number}, Load: lease.NoLoad}
}

func endOf(s *events.State, i lease.Incarnation) lease.Reason {
	if why, ok := s.Ended[i]; ok {
		return why
	}
	return lease.Expired
}

// partitionsOf returns how many partitions each node of a table owns, in the order of t.Nodes.
func partitionsOf(t *placement.Table) []int {
	owned := make([]int, len(t.Nodes()))
	for p := range t.Partitions() {
		if i := t.OwnerIndex(placement.Partition(p)); i >= 0 {
			owned[i]++
		}
	}
	return owned
}

// confirmTime is how long Ended waits for a confirmation. The node's watchers need about half of this time.
const confirmTime = time.Second

// Ended reports whether an incarnation is no longer live in this node's view. If the incarnation is still
// live, Ended connects to the node's address to check the process. If the process is gone, Ended waits until
// the other nodes have confirmed its end, for at most a second or until ctx ends. If the check does not prove
// that the process is gone, Ended returns without waiting for other nodes. Ended itself never declares a node
// dead. A false result proves nothing, because the cluster notices the loss of a whole host only after half a
// TTL. Call Ended if you have a reason to believe that a member has crashed.
func (a *Agent) Ended(ctx context.Context, of lease.Incarnation) bool {
	m := a.snap.Load().running(of)
	if m == nil || of.Node == a.self {
		return m == nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if !a.gossip.Ended(ctx, gossip.Target{Handle: of.Handle(), Addr: m.Addr}) {
		return a.snap.Load().running(of) == nil
	}
	return a.await(ctx, func(s *Snapshot) bool { return s.running(of) == nil }) == nil
}

// running returns the member with this incarnation. running returns nil if the node is not live or a later
// incarnation has replaced this one.
func (s *Snapshot) running(of lease.Incarnation) *Member {
	if m, ok := s.Member(of.Node); ok && m.Incarnation <= of.Number {
		return m
	}
	return nil
}
