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

// LostFor is how long a snapshot has a member that is not live any more.
const LostFor = 30 * time.Minute

// maxLost bounds the lost members of a snapshot.
const maxLost = 256

// Lost is a member that is not live any more, and did not come back.
type Lost struct {
	*Member    // as this node knew it last
	Reason     lease.Reason
	At         time.Time // when this node learned that it had gone, by this node's clock
	Partitions int       // that it owned then; others own these since
}

// Left reports whether the member went by itself.
func (l *Lost) Left() bool { return l.Reason == lease.Departed }

// Lost returns the members that have gone within LostFor and did not come back, the latest
// first, at most 256. It is a list of this node alone, from the time since it was started.
func (s *Snapshot) Lost() []Lost {
	for i := range s.lost {
		if time.Since(s.lost[i].At) > LostFor {
			return s.lost[:i]
		}
	}
	return s.lost
}

// fillLost adds the members that have gone since old.
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

// goneSince returns the members that have gone since old, in one pass: thousands may go at once.
func (s *Snapshot) goneSince(old *Snapshot, now time.Time) (gone []Lost) {
	if s.State == old.State || old.State == nil {
		return nil
	}
	gone = slices.Grow(gone, max(0, len(old.State.Members)-len(s.State.Members)))
	var owned []int // by index into the old table's nodes
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

// fillParting keeps what was known of members that have gone, until the next state is without them: one that
// leaves drains first, and is no candidate of the table any more.
func (s *Snapshot) fillParting(old *Snapshot) {
	if s.State == nil {
		return
	}
	live, was, parting := s.Members, old.Members, old.parting
	for _, m := range s.State.Members {
		if next(&live, m.Node) != nil {
			continue
		}
		if last := cmp.Or(next(&was, m.Node), next(&parting, m.Node)); last != nil {
			s.parting = append(s.parting, last)
		}
	}
}

// lastOf returns a copy of what the snapshot knows of a member, which may have gone already. The members of a
// snapshot are one piece of memory, of which one would keep all.
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

// partitionsOf returns how many partitions each node of a table owns, by index into its nodes.
func partitionsOf(t *placement.Table) []int {
	owned := make([]int, len(t.Nodes()))
	for p := range t.Partitions() {
		if i := t.OwnerIndex(placement.Partition(p)); i >= 0 {
			owned[i]++
		}
	}
	return owned
}

// confirmTime is how long Ended waits for the confirmation of an end. The watchers of a node need
// about half of it.
const confirmTime = time.Second

// Ended reports whether an incarnation is no longer live here. If it is, Ended looks for
// itself: it connects to the address of the node. If the process is gone, Ended waits until
// the other nodes have confirmed its end, for at most a second or until ctx ends; otherwise it
// returns false at once. So Ended never makes a node dead, and false proves nothing: a host that
// vanished is noticed after half a TTL. Call it when you have reason to believe that a member
// has died.
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

// running returns the member of an incarnation while no later incarnation has replaced it,
// and nil if its node is not live.
func (s *Snapshot) running(of lease.Incarnation) *Member {
	if m, ok := s.Member(of.Node); ok && m.Incarnation <= of.Number {
		return m
	}
	return nil
}
