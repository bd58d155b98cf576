package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// BenchmarkSpread does not measure time. For 1,024 partitions, it reports how evenly each strategy spreads them, and
// how many of them move when a node joins and when a node leaves, as a multiple of the necessary number. The results
// are medians over fleets with different names. With least-partitions, partitions are levelled before each measurement
// and after each change.
func BenchmarkSpread(b *testing.B) {
	sizes, fleets := []int{3, 10, 100}, 101
	if testing.Short() {
		sizes, fleets = sizes[:2], 11
	}
	for _, s := range strategies {
		for _, nodes := range sizes {
			b.Run(fmt.Sprintf("%s/%d", s.Name(), nodes), func(b *testing.B) {
				var cv, most, join, leave []float64
				for seed := range fleets {
					all := make([]placement.Node, nodes+1)
					for i := range all {
						all[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("fleet%d-node-%d", seed, i)), Weight: 100}
					}
					before := settle(b, s, nil, all[:nodes])
					balance := before.Balance()
					cv, most = append(cv, 100*balance.CV), append(most, balance.MaxMean)

					after := settle(b, s, before, all)
					must := float64(before.Partitions()) / float64(nodes+1)
					join = append(join, moved(before, after)/must)

					// The leaving node may own more or less than its share. Everything that it owned has to move.
					leaver := all[nodes/2]
					gone := settle(b, s, before, append(slices.Clone(all[:nodes/2]), all[nodes/2+1:nodes]...))
					leave = append(leave, moved(before, gone)/float64(max(1, len(before.Owned(leaver.ID)))))
				}
				for b.Loop() { // the framework requires this loop
				}
				b.ReportMetric(median(cv), "cv%")
				b.ReportMetric(median(most), "max/mean")
				b.ReportMetric(median(join), "join-moves/needed")
				b.ReportMetric(median(leave), "leave-moves/needed")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// settle returns the final table for nodes. before is the previous table, or nil.
func settle(b *testing.B, s placement.Strategy, before *placement.Table, nodes []placement.Node) *placement.Table {
	b.Helper()
	in := placement.Input{Nodes: nodes, Partitions: 1024, Strategy: s}
	if placement.Remembers(s) {
		in.Memory = assignment.Record(before, assignment.Coordinator{ID: "x"})
	}
	t := compute(b, in)
	if !placement.Remembers(s) {
		return t
	}
	for {
		assigned := assignment.Record(t, assignment.Coordinator{ID: "x"})
		in.Memory = assigned
		next, err := assignment.Level(compute(b, in), assignment.Coordinator{ID: "x"}, assigned.Version(), false)
		if err != nil {
			b.Fatal(err)
		}
		if next == assigned {
			return t
		}
		in.Memory = next
		t = compute(b, in)
	}
}

func moved(before, after *placement.Table) (n float64) {
	for p := range placement.Partition(before.Partitions()) {
		from, _ := before.Owner(p)
		to, _ := after.Owner(p)
		if from != to {
			n++
		}
	}
	return n
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
