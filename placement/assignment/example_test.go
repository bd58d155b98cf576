package assignment_test

import (
	"fmt"

	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// A partition goes to a deputy while its owner is away, and back when the owner returns.
func ExampleRecord() {
	both := []placement.Node{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}}
	writer := assignment.Coordinator{ID: "a"}
	in := placement.Input{Nodes: both, Partitions: 4, Strategy: placement.LeastPartitions(1, 0)}
	table, err := placement.Compute(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("at first: ", table.Owned("a"), table.Owned("b"))

	in.Memory, in.Nodes = assignment.Record(table, writer), both[:1]
	table, _ = placement.Compute(in)
	fmt.Println("b is away:", table.Owned("a"), table.Owned("b"))

	in.Memory, in.Nodes = assignment.Record(table, writer), both
	table, _ = placement.Compute(in)
	fmt.Println("b is back:", table.Owned("a"), table.Owned("b"))
	// Output:
	// at first:  [0 2] [1 3]
	// b is away: [0 1 2 3] []
	// b is back: [0 2] [1 3]
}
