package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// plainBounded is a simple reference model of bounded-load rendezvous hashing. A partition goes to the first node, in
// the order of scores, that is below its bound.
func plainBounded(nodes []placement.Node, partitions, percent int) []lease.NodeID {
	sum := int64(0)
	for _, n := range nodes {
		sum += int64(n.Weight)
	}
	most := make(map[lease.NodeID]int64)
	for _, n := range nodes {
		fair := int64(percent) * int64(partitions) * int64(n.Weight)
		most[n.ID] = fair / (100 * sum)
		if fair%(100*sum) > 0 {
			most[n.ID]++
		}
	}
	byScore, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: partitions})
	if err != nil {
		panic(err)
	}
	owners := make([]lease.NodeID, partitions)
	for p := range owners {
		for _, id := range byScore.Rank(placement.Partition(p), len(nodes)) {
			if most[id] > 0 {
				most[id]--
				owners[p] = id
				break
			}
		}
	}
	return owners
}

func TestBoundedLikeReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(1, 8).Draw(t, "nodes")
		partitions := anyPartitions().Draw(t, "partitions")
		percent := rapid.SampledFrom([]int{100, 101, 110, 125, 200, 1000}).Draw(t, "percent")
		table := mustComputeBy(t, placement.Bounded(percent), partitions, nodes...)
		if want := plainBounded(nodes, partitions, percent); !slices.Equal(owners(table), want) {
			t.Errorf("owners %v, want %v", owners(table), want)
		}
	})
}

// A join moves as many partitions as a leave. The number is the number in the doc comment, and higher than with
// rendezvous hashing.
func TestBoundedMoves(t *testing.T) {
	const partitions, fleets = 1024, 30
	for _, tt := range []struct {
		percent, nodes int
		least, most    float64 // moves for each partition that the joiner gets: average and maximum
	}{
		{105, 10, 1.03, 1.5},
		{105, 50, 1.4, 2.5},
		{125, 10, 1, 1.2},
		{125, 50, 1.05, 1.6},
		{200, 10, 1, 1},
	} {
		sum := 0.0
		for seed := range fleets {
			nodes := fleet(seed, tt.nodes+1)
			joiner := nodes[tt.nodes].ID
			now := mustComputeBy(t, placement.Bounded(tt.percent), partitions, nodes...)
			after := owners(now)
			moved := 0
			for p, owner := range owners(mustComputeBy(t, placement.Bounded(tt.percent), partitions, nodes[:tt.nodes]...)) {
				if after[p] != owner {
					moved++
				}
			}
			times := float64(moved) / float64(len(now.Owned(joiner)))
			if times > tt.most {
				t.Errorf("%d %%, %d nodes and %s: %d partitions move, %.2f times as many as it gets, at most %.2f",
					tt.percent, tt.nodes, joiner, moved, times, tt.most)
			}
			sum += times
		}
		if mean := sum / fleets; mean < tt.least {
			t.Errorf("%d %%, %d nodes and one more: %.2f times as many move as it gets, at least %.2f", tt.percent, tt.nodes, mean, tt.least)
		}
	}
}

func ExampleBounded() {
	nodes := []placement.Node{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}, {ID: "c", Weight: 2}}
	for _, s := range []placement.Strategy{placement.Rendezvous(), placement.Bounded(105)} {
		table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 1000, Strategy: s})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Name(), table.Balance().Counts)
	}
	// Output:
	// rendezvous map[a:272 b:277 c:451]
	// bounded-rendezvous-105 map[a:263 b:263 c:474]
}
