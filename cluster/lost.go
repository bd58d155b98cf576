package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
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
func (s *Snapshot) fillLost(old *Snapshot) {
	if s.lost = old.lost; s.State == old.State || old.State == nil {
		return
	}
	var gone []Lost
	live := s.State.Members
	for _, was := range old.State.Members {
		for len(live) > 0 && live[0].Node < was.Node {
			live = live[1:]
		}
		if len(live) > 0 && live[0].Node == was.Node {
			continue
		}
		gone = append(gone, Lost{
			Member: old.lastOf(was), Reason: endOf(s.State, was), At: time.Now(),
			Partitions: partitionsOf(old.State.Table, was.Node),
		})
	}
	back := func(l Lost) bool { return s.isLive(l.ID) }
	if len(gone) == 0 && !slices.ContainsFunc(s.lost, back) {
		return
	}
	s.lost = slices.DeleteFunc(slices.Concat(gone, old.lost), back)
	s.lost = s.lost[:min(len(s.lost), maxLost)]
}

func (s *Snapshot) isLive(id lease.NodeID) bool {
	_, ok := slices.BinarySearchFunc(s.State.Members, id, func(m lease.Incarnation, id lease.NodeID) int { return cmp.Compare(m.Node, id) })
	return ok
}

// lastOf returns what the snapshot knows of a member, which may have gone already.
func (s *Snapshot) lastOf(i lease.Incarnation) *Member {
	if m, ok := s.Member(i.Node); ok {
		return m
	}
	if at := slices.IndexFunc(s.owners, func(m *Member) bool { return m.ID == i.Node }); at >= 0 {
		return s.owners[at]
	}
	return &Member{ID: i.Node, Incarnation: i.Number, Load: lease.NoLoad}
}

func endOf(s *events.State, i lease.Incarnation) lease.Reason {
	if why, ok := s.Ended[i]; ok {
		return why
	}
	return lease.Expired
}

func partitionsOf(t *placement.Table, id lease.NodeID) (n int) {
	nodes := t.Nodes()
	at := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.ID == id })
	if at < 0 {
		return 0
	}
	for p := range t.Partitions() {
		if t.OwnerIndex(placement.Partition(p)) == at {
			n++
		}
	}
	return n
}
