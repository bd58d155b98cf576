package placement_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// exploding is a strategy that panics in Assign or Rank if there are more than two nodes.
type exploding struct {
	byTurns
	assign, rank func(nodes []placement.Node)
}

func (e exploding) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if e.assign != nil && len(nodes) > 2 {
		e.assign(nodes)
	}
	return e.byTurns.Assign(nodes, partitions)
}

func (e exploding) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	if e.rank != nil && len(nodes) > 2 {
		e.rank(nodes)
	}
	return e.byTurns.Rank(nodes, p, n)
}

// slips are typical mistakes that panic.
var slips = map[string]func(nodes []placement.Node){
	"a word":               func([]placement.Node) { panic("no zone") },
	"an error":             func([]placement.Node) { panic(errors.New("no zone")) },
	"an index":             func(nodes []placement.Node) { nodes[len(nodes)].Weight = 0 },
	"a division by 0":      func(nodes []placement.Node) { nodes[0].Capacity /= int64(len(nodes) - 3) },
	"a map that is nil":    func(nodes []placement.Node) { nodes[0].Labels["seen"] = "yes" },
	"a pointer that is so": func([]placement.Node) { var last *placement.Node; last.Weight++ },
}

// The error after a panic names the strategy, and earlier tables stay usable.
func TestPanicInAssign(t *testing.T) {
	for name, slip := range slips {
		t.Run(name, func(t *testing.T) {
			for _, s := range []placement.Strategy{exploding{assign: slip}, placement.Zoned(exploding{assign: slip})} {
				base := mustComputeBy(t, s, 8, equals("a", "b")...)
				for _, from := range []*placement.Table{nil, base} {
					table, err := placement.Compute(placement.Input{Nodes: equals("a", "b", "c"), Partitions: 8, Strategy: s, Base: from})
					want := `placement: strategy "` + s.Name() + `": assign 8 partitions to 3 nodes: panic: `
					if table != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
						t.Errorf("table %v, error %v; want %s…", table, err, want)
					}
				}
				if owner, ok := base.Owner(3); !ok || owner != "b" {
					t.Errorf("of the last good table, partition 3 belongs to %q", owner)
				}
			}
		})
	}
}

// stumbling is a strategy with a memory that panics in Keep or Level.
type stumbling struct {
	byTurns
	keep, level func(nodes []placement.Node)
}

func (s stumbling) Keep(nodes []placement.Node, held []int) ([]int, error) {
	s.keep(nodes)
	return s.Assign(nodes, len(held))
}

func (s stumbling) Level(nodes []placement.Node, _ []int, _ []placement.Partition, _ bool) []placement.Move {
	s.level(nodes)
	return nil
}

// If a strategy with a memory fails, the error also names it.
func TestPanicInKeepAndLevel(t *testing.T) {
	fine := func([]placement.Node) {}
	for name, slip := range slips {
		table, err := placement.Compute(placement.Input{
			Nodes:      equals("a", "b", "c"),
			Partitions: 8,
			Strategy:   stumbling{keep: slip, level: fine},
		})
		want := `placement: strategy "by-turns": assign 8 partitions to 3 nodes: panic: `
		if table != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s in Keep: table %v, error %v", name, table, err)
		}
		table = mustComputeBy(t, stumbling{keep: fine, level: slip}, 8, equals("a", "b", "c")...)
		moves, err := table.Level(nil, false)
		if want := `placement: strategy "by-turns": level: panic: `; moves != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s in Level: moves %v, error %v", name, moves, err)
		}
		if table.Balance().Levelling {
			t.Errorf("%s in Level: the balance is levelling", name)
		}
	}
}

// If Rank panics, the table still returns the owner.
func TestPanicInRank(t *testing.T) {
	for name, slip := range slips {
		t.Run(name, func(t *testing.T) {
			for _, s := range []placement.Strategy{exploding{rank: slip}, placement.Zoned(exploding{rank: slip})} {
				table := mustComputeBy(t, s, 8, equals("a", "b", "c")...)
				for n := range 4 {
					want := []lease.NodeID{"b"}[:min(n, 1)]
					if diff := cmp.Diff(want, table.Rank(4, n), cmp.Transformer("list", list)); diff != "" {
						t.Errorf("%s: Rank(4, %d) (-want +got):\n%s", s.Name(), n, diff)
					}
				}
			}
		})
	}
}

// The nodes have the highest possible weights, and their sum exceeds 32 bits. A strategy may reject these weights.
// Otherwise the shares must be right.
func TestGreatestWeights(t *testing.T) {
	const partitions, n = 4096, 5
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		nodes := fleet(1, n)
		for i := range nodes {
			nodes[i].Weight = math.MaxUint32
		}
		nodes[0].Weight = math.MaxUint32 / 2
		table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: partitions, Strategy: b.fresh()})
		if err != nil {
			if !strings.Contains(err.Error(), b.fresh().Name()) || !strings.Contains(err.Error(), "weights") {
				t.Errorf("error %v; want the strategy and the reason", err)
			}
			return
		}
		counts := table.Balance().Counts
		for i, node := range nodes {
			share := 1.0 / n
			if b.weighted {
				share = float64(node.Weight) / (math.MaxUint32 * (n - 0.5))
			}
			// The shares vary by less than 30 %, both with random draws and on a ring with 160 points per node.
			if got := float64(counts[node.ID]) / partitions; math.Abs(got/share-1) > 0.3 {
				t.Errorf("node %d owns %.3f, want about %.3f", i, got, share)
			}
		}
	})
}

func TestWeightsBeyondLeastPartitions(t *testing.T) {
	nodes := make([]placement.Node, 10_000)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprint("n", i)), Weight: 1<<32 - 1}
	}
	_, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 65536, Strategy: placement.LeastPartitions(1, 3)})
	if err == nil || !strings.Contains(err.Error(), "use smaller weights") {
		t.Errorf("error %v", err)
	}
}

// A strategy rejects an empty list of nodes, and a table without nodes has no
// owners.
func TestNoNodesOfEveryStrategy(t *testing.T) {
	ofEachBuiltin(t, func(t *testing.T, b builtin) {
		s := b.fresh()
		if owners, err := s.Assign(nil, 8); err == nil {
			t.Errorf("assigns partitions without nodes: %v", owners)
		}
		for n, nodes := range map[int][]placement.Node{2: nil, 0: equals("a", "b"), -1: equals("a", "b")} {
			if got := s.Rank(nodes, 3, n); len(got) != 0 {
				t.Errorf("Rank(%v, 3, %d) = %v", nodes, n, got)
			}
		}
		table, err := placement.Compute(placement.Input{Partitions: 8, Strategy: s})
		if _, ok := table.Owner(3); err != nil || ok {
			t.Errorf("a table without nodes: %v, with an owner: %v", err, ok)
		}
	})
}
