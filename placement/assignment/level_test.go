package assignment_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// The reference model of Levelled makes one pass after the other.
func TestLevelled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold, maxMoves := rapid.IntRange(1, 3).Draw(t, "threshold"), rapid.IntRange(0, 4).Draw(t, "max moves")
		nodes := anyNodes(1, 6).Draw(t, "nodes")
		m := newRun(t, placement.LeastPartitions(threshold, maxMoves), rapid.IntRange(1, 60).Draw(t, "partitions"), nodes...)
		m.level()
		var others []placement.Node
		for _, n := range nodes {
			if rapid.Bool().Draw(t, "stays") {
				others = append(others, n)
			}
		}
		others = append(others, placement.Node{ID: "0:new:0", Weight: 500})
		m.compute(others...)
		table, passes := assignment.Levelled(m.table) // before the change is recorded
		m.change(others...)
		// An imported table ends with the same counts, but not with the same partitions, because an export does not
		// contain the order of moves.
		read, err := m.table.Export(0).Table()
		if err != nil {
			t.Fatal(err)
		}
		again, passesAgain := assignment.Levelled(read)
		if !slices.Equal(counts(again), counts(table)) || passesAgain != passes {
			t.Fatal("an imported table levels otherwise")
		}
		kept, err := read.With(assignment.Record(read, assignment.Coordinator{}))
		if err != nil || kept.Digest() != m.table.Digest() {
			t.Fatal("the record of an imported table gives another table:", err)
		}
		if want := len(m.level()); passes != want || !slices.Equal(owners(table), owners(m.table)) {
			t.Fatalf("%d passes to %v, want %d to %v", passes, owners(table), want, owners(m.table))
		}
	})
}

func TestLevelledOfOthers(t *testing.T) {
	for _, table := range []*placement.Table{
		nil, mustCompute(t, placement.Input{Nodes: equals("a", "b"), Partitions: 4}),
		mustCompute(t, placement.Input{Partitions: 4, Strategy: placement.LeastPartitions(1, 3)}),
	} {
		rest, passes := assignment.Levelled(table)
		if rest.Digest() != table.Digest() || passes != 0 {
			t.Errorf("%v in %d passes", rest.Digest(), passes)
		}
	}
}
