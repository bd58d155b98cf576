package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// After any history, a table derived from a base equals a table computed without a base. This includes a
// change from a base with zones to a table without zones.
func TestDeriveLikeAfresh(t *testing.T) {
	weights := rapid.SampledFrom([]uint32{0, 1, 1, 1, 2, 100, 1_000_000})
	strategies := []placement.Strategy{placement.Rendezvous(), placement.Zoned(placement.Rendezvous())}
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 300).Draw(t, "partitions")
		nodes := make(map[lease.NodeID]uint32)
		var base *placement.Table
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				id := lease.NodeID(fmt.Sprint("n", rapid.IntRange(0, 30).Draw(t, "node")))
				if rapid.Bool().Draw(t, "leaves") {
					delete(nodes, id)
				} else {
					nodes[id] = weights.Draw(t, "weight")
				}
			}
			in := placement.Input{Partitions: partitions, Strategy: rapid.SampledFrom(strategies).Draw(t, "strategy")}
			for id, w := range nodes {
				in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: w})
			}
			afresh, err := placement.Compute(in)
			if err != nil {
				t.Fatal(err)
			}
			in.Base = base
			derived, err := placement.Compute(in)
			if err != nil {
				t.Fatal(err)
			}
			if derived.Digest() != afresh.Digest() || !slices.EqualFunc(derived.Nodes(), afresh.Nodes(), placement.Node.Equal) {
				t.Fatalf("over %v: digest %s, afresh %s", nodes, derived.Digest(), afresh.Digest())
			}
			base = derived
		}
	})
}

// Compute ignores a base that does not fit.
func TestDeriveFromOther(t *testing.T) {
	nodes := fleet(1, 20)
	want := mustCompute(t, 256, nodes...)
	for name, base := range map[string]*placement.Table{
		"nil":              nil,
		"zero":             new(placement.Table),
		"other partitions": mustCompute(t, 128, nodes[1:]...),
		"without nodes":    mustCompute(t, 256),
		"other strategy":   mustComputeBy(t, placement.ClassicRing(), 256, nodes[1:]...),
	} {
		got, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 256, Base: base})
		if err != nil || got.Digest() != want.Digest() {
			t.Errorf("%s: %v, digest %s, want %s", name, err, got.Digest(), want.Digest())
		}
	}
}

func mustDerive(t rapid.TB, base *placement.Table, nodes ...placement.Node) *placement.Table {
	t.Helper()
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: base.Partitions(), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// BenchmarkChange measures the computation of a table after a join, a leave and a change of weight, with and without a
// base.
func BenchmarkChange(b *testing.B) {
	for _, partitions := range []int{1024, 16384} {
		for _, n := range []int{10, 100, 1000} {
			nodes := mustCompute(b, 1, fleet(1, n+1)...).Nodes() // sorted, as an agent's are
			less := mustCompute(b, partitions, nodes[:n]...)
			more := mustDerive(b, less, nodes...) // like an agent's, and the next one, too
			less = mustDerive(b, more, nodes[:n]...)
			heavier := slices.Clone(nodes)
			heavier[n/2].Weight *= 2
			for _, c := range []struct {
				what  string
				from  *placement.Table
				nodes []placement.Node
			}{{"join", less, nodes}, {"leave", more, nodes[:n]}, {"weight", more, heavier}} {
				for _, base := range []*placement.Table{c.from, nil} {
					how := "derived"
					if base == nil {
						how = "afresh"
					}
					b.Run(fmt.Sprintf("P=%d/nodes=%d/%s/%s", partitions, n, c.what, how), func(b *testing.B) {
						for b.Loop() {
							if _, err := placement.Compute(placement.Input{Nodes: c.nodes, Partitions: partitions, Base: base}); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			}
		}
	}
}
