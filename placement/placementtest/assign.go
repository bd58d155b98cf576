package placementtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/placement"
)

// maxName keeps the settings of a cluster, of which the name is a part, below the
// 512 bytes that there are for them.
const maxName = 256

func (s *suite) name() error {
	one := s.fresh()
	name := one.Name()
	switch {
	case name == "":
		return errors.New("Name is empty: nodes could not tell that they run with different strategies")
	case strings.ContainsAny(name, "=\n"):
		return fmt.Errorf("Name %q contains = or a line break, which separate the settings of a cluster", name)
	case len(name) > maxName:
		return fmt.Errorf("Name has %d bytes, at most %d: %.80q…", len(name), maxName, name)
	}
	if _, err := one.Assign(plainFleet(3), 8); err != nil {
		return fmt.Errorf("8 partitions on 3 equal nodes: %w", err)
	}
	for _, again := range []string{one.Name(), s.fresh().Name()} {
		if again != name {
			return fmt.Errorf("Name changes from %q to %q: nodes of different names refuse each other", name, again)
		}
	}
	return nil
}

// assign calls Assign and checks that the result is complete and in range. It returns
// nil for an input that the strategy may reject, and does.
func (in input) assign(s placement.Strategy, nodes []placement.Node) ([]int, error) {
	owners, err := s.Assign(nodes, in.partitions)
	switch {
	case err != nil && in.extreme:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%v: Assign fails: %w; it has to find an owner for every partition", in, err)
	case len(owners) != in.partitions:
		return nil, fmt.Errorf("%v: Assign returns %d owners", in, len(owners))
	}
	for p, i := range owners {
		if i < 0 || i >= len(in.nodes) {
			return nil, fmt.Errorf("%v: Assign gives partition %d to node index %d; there are 0 to %d", in, p, i, len(in.nodes)-1)
		}
	}
	return owners, nil
}

func (s *suite) total() error {
	return s.each(func(input, placement.Strategy, []placement.Node, []int) error { return nil })
}

// each calls f for every input that the strategy accepts, with a new instance, the
// nodes that it was given, and its owners.
func (s *suite) each(f func(in input, one placement.Strategy, nodes []placement.Node, owners []int) error) error {
	for _, in := range s.cases {
		one, nodes := s.fresh(), in.given()
		owners, err := in.assign(one, nodes)
		if err == nil && owners != nil {
			err = f(in, one, nodes, owners)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rounds is how often a call is repeated. The order of a small map repeats itself in
// one round of eight or so.
const rounds = 8

func (s *suite) deterministic() error {
	for _, in := range s.cases {
		one := s.fresh()
		first, err := in.assign(one, in.given())
		if err != nil {
			return err
		}
		for round := range rounds {
			who, what := one, "the same instance, asked again,"
			if round%2 == 1 {
				who, what = s.fresh(), "another instance"
			}
			again, err := in.assign(who, in.given())
			if err != nil {
				return err
			}
			if err := in.compare(first, again); err != nil {
				return fmt.Errorf("%w: %s answers differently; is there a random number, a map's order or a clock in it?", err, what)
			}
		}
	}
	return nil
}

// compare returns the first difference of two results of Assign.
func (in input) compare(a, b []int) error {
	if len(a) != len(b) {
		return fmt.Errorf("%v: owners once, an error once", in)
	}
	for p := range a {
		if a[p] != b[p] {
			return fmt.Errorf("%v: partition %d belongs to %s once and to %s once", in, p, in.nodes[a[p]].ID, in.nodes[b[p]].ID)
		}
	}
	return nil
}

// forgetful calls one instance for every input, twice and in different orders: nodes
// with different pasts must agree. It calls through Compute, with nodes in any order,
// as agents do.
func (s *suite) forgetful() error {
	rng := rand.New(rand.NewPCG(1, 2))
	old := s.fresh()
	backwards := slices.Clone(s.cases)
	slices.Reverse(backwards)
	for _, in := range slices.Concat(s.cases, backwards) {
		nodes := in.given()
		table, errOld := placement.Compute(placement.Input{Nodes: nodes, Partitions: in.partitions, Strategy: old})
		rng.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
		want, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: in.partitions, Strategy: s.fresh()})
		if err != nil && !in.extreme {
			return fmt.Errorf("%v: %w", in, err)
		}
		if (err == nil) != (errOld == nil) || table.Digest() != want.Digest() {
			return fmt.Errorf("%v: an instance that was asked about other fleets before answers differently than a new one: "+
				"nodes with different pasts would not agree", in)
		}
	}
	return nil
}
