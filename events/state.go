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
	Members []lease.Incarnation // the live nodes, sorted; don't modify

	// Details has what is known of each of Members, in the same order, or nil if nothing is known. Don't
	// modify it.
	Details []Detail

	// Ended says why nodes that were live until recently no longer are. Don't modify it.
	Ended map[lease.Incarnation]lease.Reason

	// MayOwn is the Version since which self may own partitions without an interruption. It is 0 if self may
	// not own any.
	MayOwn uint64

	self lease.NodeID
	// since has, for each partition, the Version of the state that acquired it, or 0 if self does not own it.
	// If two states have the same value, self owned the partition without interruption between them, which
	// the two tables alone cannot show. The slice is nil if self owns nothing.
	since []uint64
	waits []placement.Partition // with handoff: sorted
}

// Detail is what is known of a live node, except its load.
type Detail struct {
	*lease.Record
	State lease.State // Draining if the node is active and cordoned
}

// Same reports whether two details of an incarnation agree in state, profile, metadata and end of flapping.
func (d Detail) Same(o Detail) bool {
	if d.State != o.State || d.Record == o.Record {
		return d.State == o.State
	}
	return d.Meta == o.Meta && d.FlappingUntil == o.FlappingUntil && d.Equal(&o.Profile)
}

// Next returns the state that follows prev on node self, or the first state if prev is nil. It is pure and
// takes O(P + n) time for P partitions and n members. It allocates little if neither table nor members
// changed.
//
// If mayOwn is false, because the node is settling, fenced or draining, self owns nothing. Every loss of
// ownership needs a state, even if no watcher receives that state. So after a node has lost its lease, it
// must call Next with mayOwn false before it owns again, because otherwise its ownership would look
// uninterrupted.
//
// Members are the live nodes in any order. Next may keep the slice, so the caller must not change it
// afterwards. The caller may set Details and Ended of the result.
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

// NextRunning is [Next] for a node with handoff. The node owns the partitions that it may run now, even if
// the table names another owner, and waits for other partitions that the table gives to it. mayOwn only sets
// MayOwn.
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
			s.Members = prev.Members // so that Diff sees that they are the same
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

// keep sets the acquisition versions. Two states with equal versions share the slice.
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

// Waits returns the partitions that the table gives to the node itself but that it does not own yet because,
// with handoff, it waits for another node's run to end. Don't modify the slice. A nil State has none.
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
