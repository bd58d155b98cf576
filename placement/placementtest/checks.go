package placementtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/placement"
)

// maxName is the maximum length of a strategy's name, so that the settings of a cluster fit into 512 bytes.
const maxName = 256

func (s *suite) name() error {
	one := s.fresh()
	name := one.Name()
	switch {
	case name == "":
		return errors.New("Name is empty: nodes could not detect that they run with different strategies")
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
			return fmt.Errorf("Name changes from %q to %q: nodes reject each other if the names of their strategies differ", name, again)
		}
	}
	return nil
}

// assign calls Assign and checks that the result is complete and in range. It returns nil if the strategy
// rejects an extreme input.
func (in input) assign(s placement.Strategy, nodes []placement.Node) ([]int, error) {
	owners, err := s.Assign(nodes, in.partitions)
	switch {
	case err != nil && in.extreme:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%v: Assign fails: %w; it must find an owner for every partition", in, err)
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

// each calls f for every input that the strategy accepts, with a new instance, the nodes, and the owners.
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

// rounds is how often the suite repeats a call. The iteration order of a small map is the same in about one
// of eight rounds.
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

// forgetful uses a single instance for all inputs, twice and in different orders, because nodes with
// different histories must agree. Like agents, forgetful passes nodes to Compute in any order.
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
			return fmt.Errorf("%v: an instance that was asked about other fleets before answers differently than a new instance: "+
				"nodes with different histories would not agree", in)
		}
	}
	return nil
}

// minimal removes nodes one at a time. All partitions except those of the removed node must keep their
// owners. The same comparison covers a join and a leave.
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

// some returns the partitions to rank. If there are few partitions, it returns all of them.
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
			return fmt.Errorf("Rank(nodes, %d, %d) is %v, which is not the beginning of the rank of all nodes, %v", p, n, got, all)
		}
	}
	if all[0] != owner && !s.options.RankIgnoresLoad {
		return fmt.Errorf("Rank of partition %d begins with %s, but Assign gives it to %s: "+
			"so it is unclear which node takes over from the owner", p, nodes[all[0]].ID, nodes[owner].ID)
	}
	if again := s.fresh().Rank(in.given(), p, len(nodes)); !slices.Equal(again, all) {
		return fmt.Errorf("Rank of partition %d is %v, but %v in a new instance", p, all, again)
	}
	return nil
}

func (s *suite) leavesNodesAlone() error {
	for _, in := range s.cases {
		nodes := in.given()
		_, _ = s.fresh().Assign(nodes, in.partitions) // the check Total handles errors
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

// keepsNoNodes reuses one slice for two fleets of the same size. A strategy that has kept the slice mistakes
// the new fleet for the old one.
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
			return fmt.Errorf("%w, after the slice was reused for other nodes: the strategy must not keep the slice", err)
		}
		ranked := one.Rank(nodes, 0, len(nodes))
		if want := s.fresh().Rank(other.given(), 0, len(nodes)); !slices.Equal(ranked, want) {
			return fmt.Errorf("%v: Rank is %v, but %v in a new instance, after the slice was reused for other nodes: the strategy must not keep the slice", other, ranked, want)
		}
		return nil
	})
}

// renamed returns nodes with different ids, which have the properties of the given nodes in reverse order.
func renamed(nodes []placement.Node) []placement.Node {
	others := slices.Clone(nodes)
	slices.Reverse(others)
	for i := range others {
		others[i].ID = "other-" + nodes[i].ID
	}
	return others
}

// explain checks a strategy that is a [placement.Explainer].
func (s *suite) explain() error {
	if _, ok := s.fresh().(placement.Explainer); !ok {
		return nil
	}
	return s.each(func(in input, one placement.Strategy, _ []placement.Node, owners []int) error {
		for _, p := range in.some() {
			why := one.(placement.Explainer).Explain(in.given(), p, owners[p])
			if strings.TrimSpace(why) == "" || strings.Contains(why, "\n") {
				return fmt.Errorf("%v: Explain says %q of partition %d; it should be a sentence", in, why, p)
			}
			if again := s.fresh().(placement.Explainer).Explain(in.given(), p, owners[p]); again != why {
				return fmt.Errorf("%v: Explain says both %[3]q and %[4]q about partition %[2]d", in, p, why, again)
			}
		}
		return nil
	})
}
