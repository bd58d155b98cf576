package placementtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// holders is a Memory. It contains the holder of each partition, or "" if there is no holder.
type holders []lease.NodeID

// Held implements [placement.Memory].
func (h holders) Held(nodes []placement.Node) []int {
	held := make([]int, len(h))
	for p, id := range h {
		held[p] = slices.IndexFunc(nodes, func(n placement.Node) bool { return n.ID == id })
	}
	return held
}

// Why implements [placement.Memory].
func (holders) Why(placement.Partition, lease.NodeID) string { return "" }

// stateful checks a strategy that is a [placement.Stateful].
func (s *suite) stateful() error {
	if _, ok := s.fresh().(placement.Stateful); !ok {
		return nil
	}
	for _, in := range s.cases {
		if in.extreme || in.partitions == placement.MaxPartitions {
			continue
		}
		if err := s.keeps(in); err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
		if err := s.levels(in); err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
	}
	return nil
}

// keeps checks Keep without recorded holders, and with a holder for every third partition.
func (s *suite) keeps(in input) error {
	none := slices.Repeat([]int{-1}, in.partitions)
	owners, err := s.keep(in, none)
	if err != nil {
		return err
	}
	fresh, err := in.assign(s.fresh(), in.given())
	if err != nil {
		return err
	}
	if !slices.Equal(owners, fresh) {
		return fmt.Errorf("Keep returns %v with no partition on record, Assign %v: nodes without a memory would not agree", owners, fresh)
	}
	held := slices.Clone(none)
	for p := 0; p < len(held); p += 3 {
		held[p] = p / 3 % len(in.nodes)
	}
	if owners, err = s.keep(in, held); err != nil {
		return err
	}
	for p, i := range held {
		if i >= 0 && owners[p] != i {
			return fmt.Errorf("Keep takes partition %d from its holder %s: Level is for moving partitions", p, in.nodes[i].ID)
		}
	}
	return nil
}

// keep calls Keep of two instances, which must agree.
func (s *suite) keep(in input, held []int) ([]int, error) {
	given, nodes := slices.Clone(held), in.given()
	owners, err := s.fresh().(placement.Stateful).Keep(nodes, given)
	if err != nil {
		return nil, fmt.Errorf("Keep fails: %w", err)
	}
	again, _ := s.fresh().(placement.Stateful).Keep(in.given(), slices.Clone(held))
	if len(owners) != in.partitions || !slices.Equal(owners, again) {
		return nil, fmt.Errorf("Keep returns %v, but %v from another instance", owners, again)
	}
	if !slices.Equal(given, held) {
		return nil, errors.New("Keep modifies the slice of holders")
	}
	return owners, in.untouched("Keep", nodes)
}

// levels starts with all partitions on a single node, and runs passes until a pass moves nothing.
func (s *suite) levels(in input) error {
	movable := make([]placement.Partition, in.partitions)
	for p := range movable {
		movable[p] = placement.Partition(p)
	}
	for _, all := range []bool{false, true} {
		memory := holders(slices.Repeat([]lease.NodeID{in.nodes[0].ID}, in.partitions))
		for pass := 0; ; pass++ {
			table, err := placement.Compute(placement.Input{Nodes: in.given(), Partitions: in.partitions, Strategy: s.fresh(), Memory: memory})
			if err != nil {
				return err
			}
			moves, err := table.Level(movable, all)
			if err != nil {
				return err
			}
			if len(moves) == 0 {
				break
			}
			if all && pass > 0 || pass > in.partitions {
				return fmt.Errorf("pass %d of Level (all: %v) still moves partition %d from %s to %s: it never rests",
					pass+1, all, moves[0].Partition, moves[0].From, moves[0].To)
			}
			memory = slices.Clone(memory)
			for _, m := range moves {
				memory[m.Partition] = m.To
			}
		}
	}
	return nil
}
