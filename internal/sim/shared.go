package sim

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// shared contains the values that the nodes of a trial share, so that thousands of nodes fit into memory. While no node
// joins or leaves, all nodes have the same records, members and table.
type shared struct {
	records map[version]*lease.Record
	members [][]lease.Incarnation // the latest members
	tables  []computed            // the latest tables
}

// version names a record.
type version struct {
	node   lease.Incarnation
	number uint32
}

// computed is a table and its input.
type computed struct {
	nodes      []placement.Node
	partitions int
	strategy   placement.Strategy
	table      *placement.Table
}

// kept is how many different tables and lists of members are kept. While nodes join or leave, only a few sets of
// members are in use at the same time.
const kept = 16

// record returns the first record that had the version of r.
func (s *shared) record(r *lease.Record) *lease.Record {
	v := version{lease.Incarnation{Node: r.ID, Number: r.Incarnation}, r.Version}
	if first := s.records[v]; first != nil {
		return first
	}
	s.records[v] = r
	return r
}

// sameMembers returns an equal slice that other nodes also use.
func (s *shared) sameMembers(members []lease.Incarnation) []lease.Incarnation {
	i := slices.IndexFunc(s.members, func(m []lease.Incarnation) bool { return slices.Equal(m, members) })
	if i < 0 {
		s.members = addLatest(s.members, members)
		return members
	}
	return s.members[i]
}

// compute is placement.Compute, but remembers the latest tables. It does not remember tables of strategies
// with a memory, because these depend on more than the nodes.
func (s *shared) compute(in placement.Input) (*placement.Table, error) {
	if in.Memory != nil {
		return placement.Compute(in)
	}
	i := slices.IndexFunc(s.tables, func(c computed) bool {
		return c.partitions == in.Partitions && c.strategy == in.Strategy && slices.EqualFunc(c.nodes, in.Nodes, placement.Node.Equal)
	})
	if i >= 0 {
		return s.tables[i].table, nil
	}
	t, err := placement.Compute(in)
	if err == nil {
		s.tables = addLatest(s.tables, computed{in.Nodes, in.Partitions, in.Strategy, t})
	}
	return t, err
}

// addLatest adds an element at the front, and drops the last element if there are too many.
func addLatest[E any](all []E, e E) []E {
	return slices.Insert(all[:min(len(all), kept-1)], 0, e)
}
