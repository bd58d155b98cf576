package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// plainBounded is bounded-load rendezvous as one would tell it: for each partition
// the nodes in the order of their scores, and the first that has room.
func plainBounded(nodes []placement.Node, partitions, percent int) []lease.NodeID {
	sum := 0
	for _, n := range nodes {
		sum += int(n.Weight)
	}
	most := make(map[lease.NodeID]int)
	for _, n := range nodes {
		most[n.ID] = percent * partitions * int(n.Weight) / (100 * sum)
		if percent*partitions*int(n.Weight)%(100*sum) > 0 {
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

func TestBoundedLikeTwin(t *testing.T) { // S4.9
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) placement.Node {
			return placement.Node{ID: anyID().Draw(t, "id"), Weight: rapid.Uint32Range(1, 5).Draw(t, "weight")}
		}), 1, 8, func(n placement.Node) lease.NodeID { return n.ID }).Draw(t, "nodes")
		partitions := anyPartitions().Draw(t, "partitions")
		percent := rapid.SampledFrom([]int{100, 101, 110, 125, 200, 1000}).Draw(t, "percent")
		table := mustComputeBy(t, placement.Bounded(percent), partitions, nodes...)
		if want := plainBounded(nodes, partitions, percent); !slices.Equal(owners(table), want) {
			t.Errorf("owners %v, want %v", owners(table), want)
		}
	})
}

// The bound is what it says, and buys what the doc says.
func TestBoundedBalance(t *testing.T) { // S4.9
	const partitions = 1024
	for _, n := range []int{3, 10, 50} {
		for _, percent := range []int{100, 105, 125} {
			table := mustComputeBy(t, placement.Bounded(percent), partitions, fleet(1, n)...)
			most := (percent*partitions + 100*n - 1) / (100 * n)
			for id, count := range table.Balance().Counts {
				if count > most {
					t.Errorf("%d nodes, %d %%: %s owns %d, at most %d", n, percent, id, count, most)
				}
			}
		}
	}
}

func TestBoundedPercent(t *testing.T) {
	for percent, name := range map[int]string{
		-1: "bounded-rendezvous-100", 0: "bounded-rendezvous-100", 100: "bounded-rendezvous-100",
		125: "bounded-rendezvous-125", 5000: "bounded-rendezvous-1000",
	} {
		if got := placement.Bounded(percent).Name(); got != name {
			t.Errorf("Bounded(%d) is called %s, want %s", percent, got, name)
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
