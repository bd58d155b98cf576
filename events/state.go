package events

import (
	"cmp"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// State is one node's knowledge at one moment: the live nodes, the table, and the
// partitions that the node itself owns. It is immutable; [Next] creates it. Successive
// states share their unchanged parts.
type State struct {
	Version uint64              // counts the states of this node's process, from 1
	Table   *placement.Table    // nil until the node has one
	Members []lease.Incarnation // the live nodes, sorted; read only

	// Ended says why nodes are not live any more that were lately; read only.
	Ended map[lease.Incarnation]lease.Reason

	self lease.NodeID
	// since has, per partition, the Version of the state that acquired it, or 0 if self
	// does not own it. Two states with the same value had uninterrupted ownership between
	// them, which the two tables alone cannot show. Nil if self owns nothing.
	since []uint64
}

// Next returns the state that follows prev on node self, or the first one if
// prev is nil. It is pure and takes O(P + n) time for P partitions and n
// members; it allocates little when neither table nor members changed.
//
// If mayOwn is false, because the node is settling, fenced or draining, self owns
// nothing. Every end of an ownership must pass through a state, even if no watcher
// receives that state: a node that lost its lease calls Next with mayOwn false before
// it owns again, or its old ownership would appear uninterrupted.
//
// Members are the live nodes in any order. Next keeps a sorted slice, so the caller
// must not change it afterwards. The caller may add Ended.
func Next(prev *State, self lease.NodeID, table *placement.Table, members []lease.Incarnation, mayOwn bool) *State {
	if !slices.IsSortedFunc(members, lease.Incarnation.Compare) {
		members = slices.SortedFunc(slices.Values(members), lease.Incarnation.Compare)
	}
	s := &State{Version: 1, Table: table, Members: members, self: self}
	if prev != nil {
		s.Version = prev.Version + 1
		if slices.Equal(prev.Members, members) {
			s.Members = prev.Members // a shortcut for Diff
		}
	}
	if mayOwn {
		s.since = s.acquire(prev)
	}
	return s
}

// acquire returns the acquisition versions of s after prev.
func (s *State) acquire(prev *State) []uint64 {
	var held []uint64
	if prev != nil && prev.self == s.self {
		if held = prev.since; held != nil && prev.Table == s.Table {
			return held
		}
	}
	me, candidate := slices.BinarySearchFunc(s.Table.Nodes(), s.self, func(n placement.Node, id lease.NodeID) int {
		return cmp.Compare(n.ID, id)
	})
	if !candidate {
		return nil
	}
	since := make([]uint64, s.Table.Partitions())
	for i := range since {
		if p := placement.Partition(i); s.Table.OwnerIndex(p) == me {
			since[i] = cmp.Or(at(held, p), s.Version)
		}
	}
	if slices.Equal(since, held) {
		return held
	}
	return since
}

// Owns reports whether the node itself owns p. It takes constant time.
func (s *State) Owns(p placement.Partition) bool { return at(s.since, p) != 0 }

// Owned returns the partitions that the node itself owns, in order.
// It takes O(P) time and allocates the result.
func (s *State) Owned() []placement.Partition {
	var owned []placement.Partition
	for p, v := range s.since {
		if v != 0 {
			owned = append(owned, placement.Partition(p))
		}
	}
	return owned
}

// Digest returns the digest of the table, or 0 if there is none.
func (s *State) Digest() placement.Digest { return s.Table.Digest() }

// at returns the version that acquired p, or 0 if p is not owned.
func at(since []uint64, p placement.Partition) uint64 {
	if uint64(p) >= uint64(len(since)) {
		return 0
	}
	return since[p]
}
