package placement_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fleets runs a benchmark with each fleet size for which doc.go states the costs.
func fleets(b *testing.B, f func(b *testing.B, nodes []placement.Node)) {
	b.Helper()
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			f(b, fleet(0, n))
		})
	}
}

// sinkID keeps the compiler from dropping the measured calls.
var sinkID lease.NodeID

// BenchmarkLookup measures finding the owner of a key.
func BenchmarkLookup(b *testing.B) {
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = "room-" + strconv.Itoa(i)
	}
	fleets(b, func(b *testing.B, nodes []placement.Node) {
		b.Helper()
		t := mustCompute(b, placement.DefaultPartitions, nodes...)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			sinkID, _ = t.Owner(placement.Of(keys[i%len(keys)], t.Partitions()))
		}
	})
}

// BenchmarkCompute measures computing a new table of the default size.
func BenchmarkCompute(b *testing.B) {
	for _, weights := range []struct {
		name string
		of   func(i int) uint32
	}{
		{"equal", func(int) uint32 { return 1 }},
		{"weights=4", func(i int) uint32 { return 1 << (i % 4) }},
		{"weights=all-different", func(i int) uint32 { return uint32(i + 1) }},
	} {
		b.Run(weights.name, func(b *testing.B) {
			fleets(b, func(b *testing.B, nodes []placement.Node) {
				b.Helper()
				for i := range nodes {
					nodes[i].Weight = weights.of(i)
				}
				b.ReportAllocs()
				for b.Loop() {
					mustCompute(b, placement.DefaultPartitions, nodes...)
				}
			})
		})
	}
}
