package placement_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func mustCompute(t rapid.TB, partitions int, nodes ...placement.Node) *placement.Table {
	t.Helper()
	return mustComputeBy(t, nil, partitions, nodes...)
}

func mustComputeBy(t rapid.TB, s placement.Strategy, partitions int, nodes ...placement.Node) *placement.Table {
	t.Helper()
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: partitions, Strategy: s})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// equals returns nodes of weight 1.
func equals(ids ...lease.NodeID) []placement.Node {
	nodes := make([]placement.Node, len(ids))
	for i, id := range ids {
		nodes[i] = placement.Node{ID: id, Weight: 1}
	}
	return nodes
}

// fleet returns n nodes of weight 1. Each seed gives different ids.
func fleet(seed, n int) []placement.Node {
	nodes := make([]placement.Node, n)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("fleet%d-node-%d", seed, i)), Weight: 1}
	}
	return nodes
}

// owners returns the owner of every partition, or "" if there is no owner.
func owners(t *placement.Table) []lease.NodeID {
	ids := make([]lease.NodeID, t.Partitions())
	for p := range ids {
		ids[p], _ = t.Owner(placement.Partition(p))
	}
	return ids
}

// fixed is a strategy with fixed results.
type fixed struct {
	name   string
	assign []int
	rank   []int
	err    error
}

func (f fixed) Name() string                                          { return f.name }
func (f fixed) Assign([]placement.Node, int) ([]int, error)           { return f.assign, f.err }
func (f fixed) Rank([]placement.Node, placement.Partition, int) []int { return f.rank }

// byTurns is the simplest correct strategy: the owner is the partition modulo the number of nodes.
type byTurns struct{}

func (byTurns) Name() string { return "by-turns" }

func (byTurns) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners := make([]int, partitions)
	for p := range owners {
		owners[p] = p % len(nodes)
	}
	return owners, nil
}

func (byTurns) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	ranked := make([]int, min(n, len(nodes)))
	for at := range ranked {
		ranked[at] = (int(p) + at) % len(nodes)
	}
	return ranked
}

const idBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"

// anyID draws short ids more often than long ids, so that an id is often the prefix of another id.
func anyID() *rapid.Generator[lease.NodeID] {
	return rapid.Custom(func(t *rapid.T) lease.NodeID {
		return lease.NodeID(rapid.SliceOfN(rapid.SampledFrom([]byte(idBytes)), 1, lease.MaxIDBytes).Draw(t, "id"))
	})
}

// anyWeight draws positive weights. Most of them are small and repeat.
func anyWeight() *rapid.Generator[uint32] {
	return rapid.OneOf(rapid.Uint32Range(1, 4), rapid.Uint32Range(1, 1<<32-1))
}

// anyNodes draws least to most nodes with distinct ids, and with equal or different weights.
func anyNodes(least, most int) *rapid.Generator[[]placement.Node] {
	return rapid.Custom(func(t *rapid.T) []placement.Node {
		nodes := equals(rapid.SliceOfNDistinct(anyID(), least, most, rapid.ID).Draw(t, "ids")...)
		mixed := rapid.Bool().Draw(t, "mixed weights")
		for i := range nodes {
			if i == 0 || mixed {
				nodes[i].Weight = anyWeight().Draw(t, "weight")
			} else {
				nodes[i].Weight = nodes[0].Weight
			}
		}
		return nodes
	})
}

func anyPartitions() *rapid.Generator[int] { return rapid.IntRange(1, 200) }

// without returns the nodes except those with the given ids.
func without(nodes []placement.Node, ids ...lease.NodeID) []placement.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n placement.Node) bool { return slices.Contains(ids, n.ID) })
}
