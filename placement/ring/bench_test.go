package ring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/lease"
)

// sizes runs a benchmark with each number of nodes for which Ring states its costs.
func sizes(b *testing.B, f func(b *testing.B, ids []lease.NodeID)) {
	b.Helper()
	for _, n := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			var ids []lease.NodeID
			for i := range n {
				ids = append(ids, lease.NodeID(fmt.Sprintf("node-%d", i)))
			}
			f(b, ids)
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	keys := someKeys(1024)
	sizes(b, func(b *testing.B, ids []lease.NodeID) {
		b.Helper()
		r := mustNew(b, ids...)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			sinkID, _ = r.Owner(keys[i%len(keys)])
		}
	})
}

func BenchmarkNew(b *testing.B) {
	sizes(b, func(b *testing.B, ids []lease.NodeID) {
		b.Helper()
		for b.Loop() {
			mustNew(b, ids...)
		}
	})
}

// BenchmarkSpread measures the balance that Ring's documentation states. It creates fleets with random names, which are
// the same in each run, and computes how many more keys the busiest node has than the least busy node, in percent of
// the mean.
func BenchmarkSpread(b *testing.B) {
	for _, nodes := range []int{3, 5, 10} {
		for _, run := range []struct{ keys, trials int }{{1000, 2000}, {10_000, 400}} {
			if testing.Short() {
				run.trials /= 100
			}
			b.Run(fmt.Sprintf("nodes=%d/keys=%d", nodes, run.keys), func(b *testing.B) {
				var percent []float64
				for b.Loop() {
					percent = spreads(b, nodes, someKeys(run.keys), run.trials)
				}
				slices.Sort(percent)
				below, _ := slices.BinarySearch(percent, 7)
				b.ReportMetric(percent[run.trials/2], "%median")
				b.ReportMetric(100*float64(below)/float64(run.trials), "%trials<7%")
			})
		}
	}
}

func spreads(b *testing.B, nodes int, keys []string, trials int) []float64 {
	b.Helper()
	names := rand.New(rand.NewPCG(0, 0))
	spreads := make([]float64, trials)
	for trial := range spreads {
		fleet := make([]lease.NodeID, nodes)
		for i := range fleet {
			fleet[i] = lease.NodeID(fmt.Sprintf("%016x", names.Uint64()))
		}
		r := mustNew(b, fleet...)
		counts := make(map[lease.NodeID]int, nodes)
		for _, key := range keys {
			counts[owner(b, r, key)]++
		}
		least, most := len(keys), 0
		for _, id := range fleet {
			least, most = min(least, counts[id]), max(most, counts[id])
		}
		spreads[trial] = 100 * float64((most-least)*nodes) / float64(len(keys))
	}
	return spreads
}
