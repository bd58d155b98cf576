package placementtest

import (
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/placement"
)

// minimal takes nodes away one at a time. Whether a node joins or leaves, the same
// two tables are compared: all partitions but its own must have equal owners.
func (s *suite) minimal() error {
	return s.each(func(in input, _ placement.Strategy, _ []placement.Node, owners []int) error {
		for gone := 0; gone < len(in.nodes) && len(in.nodes) > 1; gone += 1 + len(in.nodes)/10 {
			if err := s.minimalWithout(in, owners, gone); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *suite) minimalWithout(in input, owners []int, gone int) error {
	one := in.nodes[gone].ID
	less := in
	less.nodes = slices.Delete(in.given(), gone, gone+1)
	less.fleet = fmt.Sprintf("%s without %s", in.fleet, one)
	now, err := less.assign(s.fresh(), less.given())
	if err != nil {
		return err
	}
	if now == nil {
		return nil
	}
	for p, i := range owners {
		with, sans := in.nodes[i].ID, less.nodes[now[p]].ID
		if i != gone && with != sans {
			return fmt.Errorf("%v: partition %d moves between %s and %s when %s comes or goes: not minimal",
				in, placement.Partition(p), with, sans, one)
		}
	}
	return nil
}
