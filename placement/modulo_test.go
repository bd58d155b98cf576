package placement_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/placement"
)

// Ranks are what would come of it if the nodes before were gone.
func TestModulo(t *testing.T) { // S2.2
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(1, 7).Draw(t, "nodes")
		partitions := anyPartitions().Draw(t, "partitions")
		table := mustComputeBy(t, placement.Modulo(), partitions, nodes...)
		sorted := table.Nodes()
		for p, owner := range owners(table) {
			if len(sorted) > 0 && owner != sorted[p%len(sorted)].ID {
				t.Fatalf("partition %d belongs to %s, of %v", p, owner, sorted)
			}
		}
		p := placement.Partition(rapid.IntRange(0, partitions-1).Draw(t, "partition"))
		left := nodes
		for _, id := range table.Rank(p, len(nodes)) {
			owner, _ := mustComputeBy(t, placement.Modulo(), partitions, left...).Owner(p)
			if owner != id {
				t.Fatalf("of %v partition %d goes to %s, the rank says %s", left, p, owner, id)
			}
			left = without(left, id)
		}
	})
}

// S2.2 with its correction: 64 partitions, 5 nodes become 6, and nearly five times
// as many move as have to.
func TestModuloMoves(t *testing.T) {
	nodes := fleet(1, 6)
	before, after := mustComputeBy(t, placement.Modulo(), 64, nodes[:5]...), mustComputeBy(t, placement.Modulo(), 64, nodes...)
	moved := 0
	for p, owner := range owners(before) {
		if owners(after)[p] != owner {
			moved++
		}
	}
	if moved != 50 { // p%5 ≠ p%6 for all but 14 of 64, the newcomer being last; 11 would do
		t.Errorf("%d partitions moved", moved)
	}
}
