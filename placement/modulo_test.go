package placement_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/placement"
)

func TestModulo(t *testing.T) {
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
	})
}

// When a sixth node joins five nodes, nearly five times as many of 64 partitions move as necessary.
func TestModuloMoves(t *testing.T) {
	nodes := fleet(1, 6)
	before, after := mustComputeBy(t, placement.Modulo(), 64, nodes[:5]...), mustComputeBy(t, placement.Modulo(), 64, nodes...)
	moved := 0
	for p, owner := range owners(before) {
		if owners(after)[p] != owner {
			moved++
		}
	}
	if moved != 50 { // p%5 ≠ p%6 for all but 14 of 64, because the newcomer is last; 11 moves would be enough
		t.Errorf("%d partitions moved", moved)
	}
}
