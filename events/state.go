package events

import (
	"cmp"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// State is a snapshot of what a node knows: the live nodes, the table, and the partitions that the node
// itself owns. [Next] creates states. A State is immutable, and successive states share their unchanged
// parts.
type State struct {
	Version uint64              // incremented for each state of this node's process, from 1
	Table   *placement.Table    // nil until the node has a table
	Members []lease.Incarnation // the live nodes, sorted; don't modify

	// Details contains the details of each node in Members, in the same order. It is nil if no details are
	// known. Don't modify it.
	Details []Detail

	// Ended contains the reasons why nodes that were live until recently are no longer live. Don't modify it.
	Ended map[lease.Incarnation]lease.Reason

	// MayOwn is the Version since which self has been allowed to own partitions without interruption. It is 0
	// if self is not allowed to own any.
	MayOwn uint64

	self lease.NodeID
	// since contains, for each partition, the Version of the state that acquired the partition, or 0 if self
	// does not own it. If two states have the same value, self owned the partition without interruption from
	// the earlier state to the later state. The two tables alone could not show this. The slice is nil if
	// self owns nothing.
	since []uint64
	waits []placement.Partition // see Waits; sorted
}

// Detail contains what is known about a live node, except its load.
type Detail struct {
	*lease.Record
	State lease.State // Draining if the node is Active but cordoned
}

// Same reports whether two details of an incarnation have the same state, profile, metadata and end of
// flapping.
func (d Detail) Same(o Detail) bool {
	if d.State != o.State || d.Record == o.Record {
		return d.State == o.State
	}
	return d.Meta == o.Meta && d.FlappingUntil == o.FlappingUntil && d.Equal(&o.Profile)
}

// Next returns the state that follows prev on node self, or the first state if prev is nil. Next is a pure
// function and takes O(P + n) time for P partitions and n members. It allocates little if the table and the
// members are unchanged.
//
// If mayOwn is false, self owns nothing. Pass false while the node is settling, fenced or draining. Every
// loss of ownership needs a state, even if no watcher receives that state. So after a node has lost its
// lease, it must call Next with mayOwn false before it owns partitions again. Otherwise its ownership would
// look uninterrupted.
//
// The members are the live nodes in any order. Next can keep the slice, so the caller must not modify it
// afterwards. The caller can set Details and Ended of the result.
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

// NextRunning is [Next] for a node with handoff. The node owns the partitions that it can run now, even if
// the table names another owner. The node waits for the other partitions that the table assigns to it. The
// mayOwn argument only affects MayOwn.
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
			s.Members = prev.Members // so that Diff sees that the slices are identical
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

// held returns the acquisition versions of prev if prev is a state of the same node.
func (s *State) held(prev *State) []uint64 {
	if prev == nil || prev.self != s.self {
		return nil
	}
	return prev.since
}

// keep sets the acquisition versions. If they are equal to held, both states share the slice.
func (s *State) keep(since, held []uint64) {
	if s.since = since; slices.Equal(since, held) {
		s.since = held
	}
}

// place returns the index of the node itself in the table, or -1 if it is not a candidate.
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

// Waits returns the partitions that the table assigns to this node, but that this node does not own yet,
// because with handoff it waits for another node's run to end. Don't modify the slice. For a nil State, Waits
// returns nil.
func (s *State) Waits() []placement.Partition {
	if s == nil {
		return nil
	}
	return s.waits
}

// Digest returns the digest of the table, or 0 if there is none.
func (s *State) Digest() placement.Digest { return s.Table.Digest() }

// at returns the version that acquired p, or 0 if the node does not own p.
func at(since []uint64, p placement.Partition) uint64 {
	if uint64(p) >= uint64(len(since)) {
		return 0
	}
	return since[p]
}
