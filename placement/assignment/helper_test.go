package assignment_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// run has the table and the assignment of a cluster, but no nodes that exchange them.
type run struct {
	t          rapid.TB
	strategy   placement.Strategy
	partitions int
	assigned   *assignment.Assignment
	table      *placement.Table
}

func newRun(t rapid.TB, s placement.Strategy, partitions int, nodes ...placement.Node) *run {
	t.Helper()
	m := &run{t: t, strategy: s, partitions: partitions}
	m.change(nodes...)
	return m
}

// change computes the table for other nodes, and records it as the coordinator would.
func (m *run) change(nodes ...placement.Node) {
	m.t.Helper()
	m.compute(nodes...)
	m.assigned = assignment.Record(m.table, assignment.Coordinator{ID: "boss"})
	before := owners(m.table)
	m.compute(nodes...)
	if got := owners(m.table); !slices.Equal(got, before) {
		m.t.Fatal("the record changed the table:", before, got)
	}
}

func (m *run) compute(nodes ...placement.Node) {
	m.t.Helper()
	m.table = mustCompute(m.t, placement.Input{Nodes: nodes, Partitions: m.partitions, Strategy: m.strategy, Memory: m.assigned})
}

// pass makes a pass and returns how many partitions it moved.
func (m *run) pass() int {
	m.t.Helper()
	before := owners(m.table)
	m.assigned = level(m.t, m.table, assignment.Coordinator{ID: "boss"}, m.assigned.Version(), false)
	m.compute(m.table.Nodes()...)
	return moved(before, owners(m.table))
}

// level makes passes until a pass moves nothing, and returns how many partitions each pass moved.
func (m *run) level() (moves []int) {
	m.t.Helper()
	for range 10 * m.partitions {
		n := m.pass()
		if n == 0 {
			return moves
		}
		moves = append(moves, n)
	}
	m.t.Fatal("passes never end", m.table.Balance().Counts)
	return nil
}

func moved(before, after []lease.NodeID) (n int) {
	for p := range before {
		if before[p] != after[p] {
			n++
		}
	}
	return n
}

func counts(t *placement.Table) (c []int) {
	for _, n := range t.Nodes() {
		c = append(c, len(t.Owned(n.ID)))
	}
	return c
}

// held returns the run of a cluster in which the partitions have the given owners.
func held(t rapid.TB, s placement.Strategy, deal []lease.NodeID, ids ...lease.NodeID) *run {
	t.Helper()
	nodes := equals(ids...)
	var at []int
	for _, id := range deal {
		at = append(at, slices.Index(ids, id))
	}
	table := mustCompute(t, placement.Input{Nodes: nodes, Partitions: len(deal), Strategy: dealt(at)})
	m := &run{t: t, strategy: s, partitions: len(deal), assigned: assignment.Record(table, assignment.Coordinator{ID: "boss"})}
	m.compute(nodes...)
	return m
}

// dealt is a strategy with fixed owners.
type dealt []int

func (dealt) Name() string                                          { return "dealt" }
func (d dealt) Assign([]placement.Node, int) ([]int, error)         { return d, nil }
func (dealt) Rank([]placement.Node, placement.Partition, int) []int { return nil }

func mustCompute(t rapid.TB, in placement.Input) *placement.Table {
	t.Helper()
	table, err := placement.Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// recorded returns the first assignment over nodes.
func recorded(t rapid.TB, partitions int, c assignment.Coordinator, nodes ...placement.Node) *assignment.Assignment {
	t.Helper()
	return assignment.Record(mustCompute(t, placement.Input{Nodes: nodes, Partitions: partitions}), c)
}

func level(t rapid.TB, table *placement.Table, c assignment.Coordinator, applied uint64, all bool) *assignment.Assignment {
	t.Helper()
	next, err := assignment.Level(table, c, applied, all)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// equals returns nodes of weight 1.
func equals(ids ...lease.NodeID) (nodes []placement.Node) {
	for _, id := range ids {
		nodes = append(nodes, placement.Node{ID: id, Weight: 1})
	}
	return nodes
}

// fleet returns n nodes of weight 1.
func fleet(n int) (nodes []placement.Node) {
	for i := range n {
		nodes = append(nodes, placement.Node{ID: lease.NodeID(fmt.Sprintf("fleet1-node-%d", i)), Weight: 1})
	}
	return nodes
}

func owners(t *placement.Table) []lease.NodeID { return t.Export(0).Owners }

// anyNodes draws least to most nodes, with equal or different weights.
func anyNodes(least, most int) *rapid.Generator[[]placement.Node] {
	return rapid.Custom(func(t *rapid.T) []placement.Node {
		ids := rapid.StringMatching(`[a-zA-Z0-9._:-]{1,3}`)
		var nodes []placement.Node
		mixed := rapid.Bool().Draw(t, "mixed weights")
		for _, id := range rapid.SliceOfNDistinct(ids, least, most, rapid.ID).Draw(t, "ids") {
			weight := uint32(7)
			if mixed {
				weight = rapid.OneOf(rapid.Uint32Range(1, 4), rapid.Uint32Range(1, 1000)).Draw(t, "weight")
			}
			nodes = append(nodes, placement.Node{ID: lease.NodeID(id), Weight: weight})
		}
		return nodes
	})
}

// without returns the nodes except those with the given ids.
func without(nodes []placement.Node, ids ...lease.NodeID) []placement.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n placement.Node) bool { return slices.Contains(ids, n.ID) })
}
