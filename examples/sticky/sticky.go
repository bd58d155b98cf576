package main

import (
	"slices"

	"github.com/roost-cluster/roost/placement"
)

// sticky places a partition by rendezvous hashing, and then leaves it where it is as long as its node is
// there. Only a node with more than its fair share gives partitions away, one per pass.
//
// It has no state itself. The agents remember the holder of each partition, record changes if they have a
// majority, and pass them to the strategy.
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

// Level implements placement.Stateful. For brevity, it ignores weights.
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
