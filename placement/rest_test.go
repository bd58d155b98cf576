package placement_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/placement"
)

// Settled against the passes themselves, one after the other.
func TestSettled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold, maxMoves := rapid.IntRange(1, 3).Draw(t, "threshold"), rapid.IntRange(0, 4).Draw(t, "max moves")
		nodes := anyNodes(1, 6).Draw(t, "nodes")
		for i := range nodes {
			nodes[i].Weight = min(nodes[i].Weight, 1000)
		}
		m := newMemory(t, placement.LeastPartitions(threshold, maxMoves), rapid.IntRange(1, 60).Draw(t, "partitions"), nodes...)
		m.level()
		var others []placement.Node
		for _, n := range nodes {
			if rapid.Bool().Draw(t, "stays") {
				others = append(others, n)
			}
		}
		others = append(others, placement.Node{ID: "0:new:0", Weight: 500})
		m.compute(others...)
		table, passes := m.table.Settled() // nobody has noted the change
		m.change(others...)
		// A table that was read settles likewise, but not with the same partitions:
		// which ones moved last is not written.
		again, passesAgain := reread(t, m.table).Settled()
		if !slices.Equal(counts(again), counts(table)) || passesAgain != passes {
			t.Fatal("a table that was read settles otherwise")
		}
		assigned := reread(t, m.table).Assignment()
		if kept, err := placement.Compute(placement.Input{
			Nodes: others, Partitions: m.partitions, Strategy: m.strategy, Assigned: assigned,
		}); err != nil || kept.Digest() != m.table.Digest() {
			t.Fatal("a table that was read does not remember:", err)
		}
		if want := len(m.level()); passes != want || !slices.Equal(owners(table), owners(m.table)) {
			t.Fatalf("%d passes to %v, want %d to %v", passes, owners(table), want, owners(m.table))
		}
	})
}

func TestSettledOfOthers(t *testing.T) {
	table := mustCompute(t, 4, equals("a", "b")...)
	for _, table := range []*placement.Table{nil, table, mustComputeBy(t, placement.LeastPartitions(1, 3), 4)} {
		rest, passes := table.Settled()
		if rest.Digest() != table.Digest() || passes != 0 {
			t.Errorf("%v in %d passes", rest.Digest(), passes)
		}
	}
}
