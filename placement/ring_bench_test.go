package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// ringFleets are the sizes at which Ring and ClassicRing state their costs.
func ringFleets(b *testing.B, f func(b *testing.B, nodes []placement.Node)) {
	b.Helper()
	for _, n := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) { f(b, fleet(0, n)) })
	}
}

// BenchmarkRingLookup measures a key's owner by a ring and, beside it, by a table.
func BenchmarkRingLookup(b *testing.B) {
	keys := rooms()
	b.Run("ring", func(b *testing.B) {
		ringFleets(b, func(b *testing.B, nodes []placement.Node) {
			b.Helper()
			r := mustRing(b, ids(nodes)...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sinkID, _ = r.Owner(keys[i%len(keys)])
			}
		})
	})
	b.Run("table", func(b *testing.B) {
		ringFleets(b, func(b *testing.B, nodes []placement.Node) {
			b.Helper()
			t := mustCompute(b, placement.DefaultPartitions, nodes...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sinkID, _ = t.Owner(placement.Of(keys[i%len(keys)], t.Partitions()))
			}
		})
	})
}

// BenchmarkRing measures the making of a ring, and the rank of three on one that
// is there already.
func BenchmarkRing(b *testing.B) {
	b.Run("new", func(b *testing.B) {
		ringFleets(b, func(b *testing.B, nodes []placement.Node) {
			b.Helper()
			for b.Loop() {
				mustRing(b, ids(nodes)...)
			}
		})
	})
	b.Run("rank", func(b *testing.B) {
		ringFleets(b, func(b *testing.B, nodes []placement.Node) {
			b.Helper()
			t := mustComputeBy(b, placement.ClassicRing(), placement.DefaultPartitions, nodes...)
			for i := 0; b.Loop(); i++ {
				sinkID = t.Rank(placement.Partition(i%1024), 3)[2]
			}
		})
	})
}

// BenchmarkRingSpread measures no time but the balance that Ring's documentation
// states: over fleets of random names, always the same ones, the busiest node's
// keys less the idlest's, in percent of the mean.
func BenchmarkRingSpread(b *testing.B) { // S0.11
	for _, nodes := range []int{3, 5, 10} {
		for _, run := range []struct{ keys, trials int }{{1000, 2000}, {10_000, 400}} {
			b.Run(fmt.Sprintf("nodes=%d/keys=%d", nodes, run.keys), func(b *testing.B) {
				var spreads []float64
				for b.Loop() {
					spreads = ringSpreads(b, nodes, someKeys(run.keys), run.trials)
				}
				slices.Sort(spreads)
				below, _ := slices.BinarySearch(spreads, 7)
				b.ReportMetric(spreads[run.trials/2], "%median")
				b.ReportMetric(100*float64(below)/float64(run.trials), "%trials<7%")
			})
		}
	}
}

func ringSpreads(b *testing.B, nodes int, keys []string, trials int) []float64 {
	b.Helper()
	names := rand.New(rand.NewPCG(0, 0))
	spreads := make([]float64, trials)
	for trial := range spreads {
		fleet := make([]lease.NodeID, nodes)
		for i := range fleet {
			fleet[i] = lease.NodeID(fmt.Sprintf("%016x", names.Uint64()))
		}
		r := mustRing(b, fleet...)
		counts := make(map[lease.NodeID]int, nodes)
		for _, key := range keys {
			counts[ringOwner(b, r, key)]++
		}
		least, most := len(keys), 0
		for _, id := range fleet {
			least, most = min(least, counts[id]), max(most, counts[id])
		}
		spreads[trial] = 100 * float64((most-least)*nodes) / float64(len(keys))
	}
	return spreads
}
