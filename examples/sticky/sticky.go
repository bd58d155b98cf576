package main

import (
	"slices"

	"github.com/roost-cluster/roost/placement"
)

// sticky places a partition by rendezvous hashing. The partition then stays on its node while that node is a
// candidate, unless the node has more than its fair share. Such a node gives partitions away, one per pass.
//
// The strategy itself has no state. The agents remember the owner of each partition and pass it to the
// strategy. Agents record changes only while they see a majority.
type sticky struct{}

func (sticky) Name() string { return "sticky" }

func (sticky) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	return placement.Rendezvous().Assign(nodes, partitions)
}

func (sticky) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	return placement.Rendezvous().Rank(nodes, p, n)
}

// Keep implements placement.Stateful.
func (s sticky) Keep(nodes []placement.Node, held []int) ([]int, error) {
	owners, err := s.Assign(nodes, len(held))
	if err != nil {
		return nil, err
	}
	for p, i := range held {
		if i >= 0 {
			owners[p] = i
		}
	}
	return owners, nil
}

// Level implements placement.Stateful. To keep the example short, it ignores weights.
func (s sticky) Level(nodes []placement.Node, owners []int, movable []placement.Partition, all bool) (moves []placement.Move) {
	fair := (len(owners) + len(nodes) - 1) / len(nodes) // rounded up
	count := make([]int, len(nodes))
	for _, i := range owners {
		count[i]++
	}
	for _, p := range movable {
		from := owners[p]
		if count[from] <= fair || len(moves) > 0 && !all {
			continue
		}
		ranked := s.Rank(nodes, p, len(nodes))
		to := ranked[slices.IndexFunc(ranked, func(i int) bool { return count[i] < fair })]
		moves = append(moves, placement.Move{Partition: p, From: nodes[from].ID, To: nodes[to].ID})
		count[from]--
		count[to]++
	}
	return moves
}
