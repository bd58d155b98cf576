package placement_test

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

// builtin is a strategy of the package, with the claims of its doc comment.
type builtin struct {
	fresh    func() placement.Strategy
	minimal  bool // a join moves partitions only to the joiner, and a leave moves only the leaver's partitions
	weighted bool // shares follow weights
	loads    bool // owners depend on the number of partitions of each node, which Rank cannot know
}

// builtins has two rows for every strategy of the package, without and with zones. The tests of this file run for each
// row, and testdata/golden/strategies has lines for each row.
func builtins() map[string]builtin {
	all := map[string]builtin{
		"rendezvous":             {fresh: placement.Rendezvous, minimal: true, weighted: true},
		"bounded-rendezvous-125": {fresh: func() placement.Strategy { return placement.Bounded(125) }, weighted: true, loads: true},
		"modulo":                 {fresh: placement.Modulo},
		"vnode-ring":             {fresh: placement.VnodeRing, minimal: true, weighted: true},
		"classic-ring":           {fresh: placement.ClassicRing, minimal: true},
		"least-partitions-1-3":   {fresh: func() placement.Strategy { return placement.LeastPartitions(1, 3) }, weighted: true, loads: true},
	}
	for name, plain := range maps.Clone(all) {
		zoned := plain
		zoned.fresh = func() placement.Strategy { return placement.Zoned(plain.fresh()) }
		all[name+"+zones"] = zoned
	}
	return all
}

// Each name in the text for users is a valid strategy and has its rows.
func TestEveryStrategyHasRows(t *testing.T) {
	list, _, _ := strings.Cut(placement.Strategies, ", each also with +zones")
	all, names := builtins(), strings.Split(regexp.MustCompile(` \([^)]*\)`).ReplaceAllString(list, ""), ", ")
	for _, plain := range names {
		for _, name := range []string{plain, plain + "+zones"} {
			if s, err := placement.ParseStrategy(name); err != nil || s.Name() != name {
				t.Errorf("%q: %v, %v", name, s, err)
			}
			if _, ok := all[name]; !ok {
				t.Errorf("builtins has no row for %s", name)
			}
		}
	}
	if 2*len(names) != len(all) {
		t.Errorf("%d strategies are named, and there are %d rows", len(names), len(all))
	}
}

// ofEachBuiltin runs a test for each strategy. The order is fixed, because rapid's seeds depend on it.
func ofEachBuiltin(t *testing.T, test func(t *testing.T, b builtin)) {
	t.Helper()
	all := builtins()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { test(t, all[name]) })
	}
}

func TestBuiltinsConform(t *testing.T) {
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		placementtest.Strategy(t, b.fresh, placementtest.Options{Minimal: b.minimal, RankIgnoresLoad: b.loads})
	})
}

// A name always stands for the same strategy.
func TestBuiltinNames(t *testing.T) {
	for name, b := range builtins() {
		if got := b.fresh().Name(); got != name {
			t.Errorf("%s is called %s", name, got)
		}
	}
}

// A parameter that is out of bounds counts as the nearest valid value.
func TestParametersHaveBounds(t *testing.T) {
	for _, tt := range []struct {
		s    placement.Strategy
		want string
	}{
		{placement.Bounded(-1), "bounded-rendezvous-100"},
		{placement.Bounded(100), "bounded-rendezvous-100"},
		{placement.Bounded(5000), "bounded-rendezvous-1000"},
		{placement.LeastPartitions(0, -1), "least-partitions-1-0"},
		{placement.Zoned(placement.LeastPartitions(5, 1<<30)), "least-partitions-5-65536+zones"},
	} {
		if remembers := strings.HasPrefix(tt.want, "least"); tt.s.Name() != tt.want || placement.Remembers(tt.s) != remembers {
			t.Errorf("%s remembers: %v; want %s, %v", tt.s.Name(), placement.Remembers(tt.s), tt.want, remembers)
		}
	}
}

// anyFleet draws nodes with zones and weights that every strategy accepts. Some weights are 0.
func anyFleet(least int) *rapid.Generator[[]placement.Node] {
	node := rapid.Custom(func(t *rapid.T) placement.Node {
		return placement.Node{
			ID:     anyID().Draw(t, "id"),
			Weight: rapid.SampledFrom([]uint32{0, 1, 50, 100, 100, 100, 200, 1000}).Draw(t, "weight"),
			Zone:   rapid.SampledFrom([]string{"", "east", "west"}).Draw(t, "zone"),
		}
	})
	return rapid.SliceOfNDistinct(node, least, 10, func(n placement.Node) lease.NodeID { return n.ID })
}

// In every table, each partition has an owner. The table depends only on the nodes with a weight above 0, but not on
// their order or on earlier calls.
func TestEveryStrategyIsAFunctionOfTheFleet(t *testing.T) {
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		used := b.fresh()
		rapid.Check(t, func(t *rapid.T) {
			nodes := anyFleet(1).Draw(t, "nodes")
			partitions := anyPartitions().Draw(t, "partitions")
			table := mustComputeBy(t, b.fresh(), partitions, nodes...)
			candidates := slices.DeleteFunc(slices.Clone(nodes), func(n placement.Node) bool { return n.Weight == 0 })
			for p, owner := range owners(table) {
				if owns := slices.ContainsFunc(candidates, func(n placement.Node) bool { return n.ID == owner }); owns != (len(candidates) > 0) {
					t.Fatalf("of %v, partition %d belongs to %q", candidates, p, owner)
				}
				if ranked := table.Rank(placement.Partition(p), len(nodes)); len(ranked) != len(candidates) {
					t.Fatalf("of %v, partition %d ranks only %v", candidates, p, ranked)
				}
			}
			again := mustComputeBy(t, used, partitions, rapid.Permutation(candidates).Draw(t, "shuffled")...)
			if again.Digest() != table.Digest() || !slices.EqualFunc(again.Nodes(), table.Nodes(), placement.Node.Equal) {
				t.Fatal("the order of nodes, nodes of weight 0 or earlier calls have influence")
			}
		})
	})
}

// If a node's weight changes, partitions move only to or from that node, even if the weight is 0 before or afterwards.
// If the strategy ignores weights, a change between positive weights moves no partition.
func TestMinimalStrategiesMoveTheMinimum(t *testing.T) {
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		if !b.minimal {
			return // see TestModuloMoves, TestBoundedMoves and the tests of package assignment
		}
		s := b.fresh()
		rapid.Check(t, func(t *rapid.T) {
			nodes := anyFleet(2).Draw(t, "nodes")
			nodes[0].Weight = 100 // so that there is always an owner
			partitions := anyPartitions().Draw(t, "partitions")
			one := &nodes[rapid.IntRange(1, len(nodes)-1).Draw(t, "node")]
			weights := []uint32{
				rapid.SampledFrom([]uint32{0, 1, 100}).Draw(t, "light"),
				rapid.SampledFrom([]uint32{100, 101, 1000}).Draw(t, "heavy"),
			}
			one.Weight = weights[0]
			light := mustComputeBy(t, s, partitions, nodes...)
			one.Weight = weights[1]
			heavy := mustComputeBy(t, s, partitions, nodes...)
			moved := moves(t, light, heavy, one.ID, "")
			moves(t, heavy, light, "", one.ID)
			if gained := len(heavy.Owned(one.ID)) - len(light.Owned(one.ID)); gained != moved {
				t.Fatalf("%d partitions moved, and it owns %d more", moved, gained)
			}
			if !b.weighted && weights[0] > 0 && moved > 0 {
				t.Fatal("a weight has influence that should have none")
			}
		})
	})
}

// Averaged over many fleets, the share of a node corresponds to its weight. The tolerance is four standard errors of
// the mean of random draws, which is generous for strategies that even out the load. For rings, it assumes 150 points
// per node.
func TestMeanSharesFollowWeights(t *testing.T) {
	const fleets, partitions = 60, 1024
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		weights := []uint32{100, 200, 400, 100, 50}
		total := 850.0
		if !b.weighted {
			weights, total = []uint32{100, 1, 1000, 100, 50}, 0 // all alike
		}
		counts := make([]float64, len(weights))
		s := b.fresh()
		for seed := range fleets {
			nodes := fleet(seed, len(weights))
			for i := range nodes {
				nodes[i].Weight = weights[i]
			}
			balance := mustComputeBy(t, s, partitions, nodes...).Balance()
			for i, n := range nodes {
				counts[i] += float64(balance.Counts[n.ID])
			}
		}
		for i, w := range weights {
			share := 1 / float64(len(weights))
			if b.weighted {
				share = float64(w) / total
			}
			points := 150 * share * float64(len(weights)) // points of this node on a ring
			want := share * partitions
			sigma := math.Sqrt(want*(1-share) + want*want/points)
			if got := counts[i] / fleets; math.Abs(got-want) > 4*sigma/math.Sqrt(fleets) {
				t.Errorf("a node of weight %d among %v owns %.1f of %d on average, want %.1f ± %.1f",
					w, weights, got, partitions, want, 4*sigma/math.Sqrt(fleets))
			}
		}
	})
}
