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

	// Details has what is known of each of Members, in the same order; nil = not known. Read only.
	Details []Detail

	// Ended says why nodes are not live any more that were lately; read only.
	Ended map[lease.Incarnation]lease.Reason

	// MayOwn is the Version since which self may own partitions without an interruption; 0 = it may not.
	MayOwn uint64

	self lease.NodeID
	// since has, per partition, the Version of the state that acquired it, or 0 if self
	// does not own it. Two states with the same value had uninterrupted ownership between
	// them, which the two tables alone cannot show. Nil if self owns nothing.
	since []uint64
	waits []placement.Partition // with handoff: sorted
}

// Detail is what is known of a live node, besides its load.
type Detail struct {
	*lease.Record
	State lease.State // Draining if the node is active and cordoned
}

// Same reports whether two details of one incarnation are the same for a program: its state, its profile, its
// metadata, and until when the node is flapping.
func (d Detail) Same(o Detail) bool {
	if d.State != o.State || d.Record == o.Record {
		return d.State == o.State
	}
	return d.Meta == o.Meta && d.FlappingUntil == o.FlappingUntil && d.Equal(&o.Profile)
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
// must not change it afterwards. The caller may add Details and Ended.
func Next(prev *State, self lease.NodeID, table *placement.Table, members []lease.Incarnation, mayOwn bool) *State {
	s := follow(prev, self, table, members, mayOwn)
	if !mayOwn {
		return s
	}
	held := s.held(prev)
	if held != nil && prev.Table == table {
		s.since = held
		return s
	}
	me := s.place()
	if me < 0 {
		return s
	}
	since := make([]uint64, table.Partitions())
	for i := range since {
		if p := placement.Partition(i); table.OwnerIndex(p) == me {
			since[i] = cmp.Or(at(held, p), s.Version)
		}
	}
	s.keep(since, held)
	return s
}

// NextRunning is [Next] for a node with handoff: it owns the partitions that it may run
// now, whatever the table names, and waits for others of its table. mayOwn only sets MayOwn.
func NextRunning(
	prev *State,
	self lease.NodeID,
	table *placement.Table,
	members []lease.Incarnation,
	mayOwn bool,
	run, wait []placement.Partition,
) *State {
	s := follow(prev, self, table, members, mayOwn)
	s.waits = wait
	if len(run) == 0 {
		return s
	}
	held := s.held(prev)
	since := make([]uint64, table.Partitions())
	for _, p := range run {
		since[p] = cmp.Or(at(held, p), s.Version)
	}
	s.keep(since, held)
	return s
}

// follow returns the state after prev, without partitions.
func follow(prev *State, self lease.NodeID, table *placement.Table, members []lease.Incarnation, mayOwn bool) *State {
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
		s.MayOwn = s.Version
		if prev != nil && prev.self == self {
			s.MayOwn = cmp.Or(prev.MayOwn, s.Version)
		}
	}
	return s
}

// held returns what the same node owned in prev.
func (s *State) held(prev *State) []uint64 {
	if prev == nil || prev.self != s.self {
		return nil
	}
	return prev.since
}

// keep sets the acquisition versions, which two states share if they are equal.
func (s *State) keep(since, held []uint64) {
	if s.since = since; slices.Equal(since, held) {
		s.since = held
	}
}

// place returns the index of the node itself in the table; -1 = it is no candidate.
func (s *State) place() int {
	me, candidate := slices.BinarySearchFunc(s.Table.Nodes(), s.self, func(n placement.Node, id lease.NodeID) int {
		return cmp.Compare(n.ID, id)
	})
	if !candidate {
		return -1
	}
	return me
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

// Waits returns the partitions that the table gives to the node itself, and that the node
// does not own yet: with handoff, it waits for another node's run to end. Read only.
// There are none in a nil State.
func (s *State) Waits() []placement.Partition {
	if s == nil {
		return nil
	}
	return s.waits
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
