package placementtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/roost-cluster/roost/placement"
)

func (s *suite) rank() error {
	return s.each(func(in input, one placement.Strategy, nodes []placement.Node, owners []int) error {
		for _, p := range in.some() {
			if err := s.rankOf(in, one, nodes, p, owners[p]); err != nil {
				return fmt.Errorf("%v: %w", in, err)
			}
		}
		return nil
	})
}

// some returns partitions to rank: all, if they are few.
func (in input) some() []placement.Partition {
	var ps []placement.Partition
	for p := 0; p < in.partitions; p += 1 + in.partitions/20 {
		ps = append(ps, placement.Partition(p))
	}
	return append(ps, placement.Partition(in.partitions-1))
}

func (s *suite) rankOf(in input, one placement.Strategy, nodes []placement.Node, p placement.Partition, owner int) error {
	all := one.Rank(nodes, p, len(nodes))
	if len(all) != len(nodes) {
		return fmt.Errorf("Rank of partition %d names %d nodes of %d", p, len(all), len(nodes))
	}
	seen := make([]bool, len(nodes))
	for _, i := range all {
		switch {
		case i < 0 || i >= len(nodes):
			return fmt.Errorf("Rank of partition %d names node index %d; there are 0 to %d", p, i, len(nodes)-1)
		case seen[i]:
			return fmt.Errorf("Rank of partition %d names %s twice: %v", p, nodes[i].ID, all)
		}
		seen[i] = true
	}
	for _, n := range []int{1, 2, len(nodes), len(nodes) + 1, math.MaxInt} {
		got, want := one.Rank(nodes, p, n), min(n, len(nodes))
		if len(got) != want {
			return fmt.Errorf("Rank(nodes, %d, %d) returns %d indexes; it should return %d", p, n, len(got), want)
		}
		if !slices.Equal(got, all[:want]) {
			return fmt.Errorf("Rank(nodes, %d, %d) is %v, which is not how the rank of all begins, %v", p, n, got, all)
		}
	}
	if all[0] != owner && !s.options.RankIgnoresLoad {
		return fmt.Errorf("Rank of partition %d begins with %s, but Assign gives it to %s: "+
			"it is not clear which node takes over from the owner", p, nodes[all[0]].ID, nodes[owner].ID)
	}
	if again := s.fresh().Rank(in.given(), p, len(nodes)); !slices.Equal(again, all) {
		return fmt.Errorf("Rank of partition %d is %v, and %v of a new instance", p, all, again)
	}
	return nil
}
