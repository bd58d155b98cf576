package placementtest

import (
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/placement"
)

func (s *suite) leavesNodesAlone() error {
	for _, in := range s.cases {
		nodes := in.given()
		_, _ = s.fresh().Assign(nodes, in.partitions) // the check Total is about errors
		if err := in.untouched("Assign", nodes); err != nil {
			return err
		}
	}
	return s.each(func(in input, one placement.Strategy, nodes []placement.Node, _ []int) error {
		one.Rank(nodes, 0, len(nodes))
		return in.untouched("Rank", nodes)
	})
}

func (in input) untouched(method string, nodes []placement.Node) error {
	for i, n := range nodes {
		if !n.Equal(in.nodes[i]) {
			return fmt.Errorf("%v: %s modifies the nodes that it is given, which others read: %+v was %+v", in, method, n, in.nodes[i])
		}
	}
	return nil
}

// keepsNoNodes reuses one slice for two fleets of the same size. A strategy that kept
// the slice takes the new fleet for the old one.
func (s *suite) keepsNoNodes() error {
	return s.each(func(in input, one placement.Strategy, nodes []placement.Node, _ []int) error {
		other := in
		other.fleet += ", renamed"
		other.nodes = renamed(in.nodes)
		copy(nodes, other.nodes)
		got, err := other.assign(one, nodes)
		if err != nil {
			return err
		}
		want, err := other.assign(s.fresh(), other.given())
		if err != nil {
			return err
		}
		if err := other.compare(want, got); err != nil {
			return fmt.Errorf("%w, after the slice held other nodes: it must not be kept", err)
		}
		ranked := one.Rank(nodes, 0, len(nodes))
		if want := s.fresh().Rank(other.given(), 0, len(nodes)); !slices.Equal(ranked, want) {
			return fmt.Errorf("%v: Rank is %v, and %v of a new instance, after the slice held other nodes: it must not be kept", other, ranked, want)
		}
		return nil
	})
}

// renamed returns other nodes, with the properties of the given ones in reverse order.
func renamed(nodes []placement.Node) []placement.Node {
	others := slices.Clone(nodes)
	slices.Reverse(others)
	for i := range others {
		others[i].ID = "other-" + nodes[i].ID
	}
	return others
}
