package placement_test

import (
	"fmt"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// A key's partition depends only on the key and the number of partitions.
func ExampleOf() {
	fmt.Println(placement.Of("room-8842", placement.DefaultPartitions))
	fmt.Println(placement.Of("room-8843", placement.DefaultPartitions))
	// Output:
	// 813
	// 163
}

// Rank returns the owner of a room, and then the nodes that would take over.
func ExampleCompute() {
	table, err := placement.Compute(placement.Input{
		Nodes: []placement.Node{
			{ID: "node-a", Weight: 1},
			{ID: "node-b", Weight: 1},
			{ID: "node-c", Weight: 2}, // a machine of twice the size
			{ID: "node-d", Weight: 0}, // draining
		},
		Partitions: placement.DefaultPartitions,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := placement.Of("room-8842", table.Partitions())
	owner, _ := table.Owner(p)
	fmt.Println("owner:", owner)
	fmt.Println("ranked:", table.Rank(p, 3))
	fmt.Println("partitions:", table.Balance().Counts)
	// Output:
	// owner: node-c
	// ranked: [node-c node-a node-b]
	// partitions: map[node-a:254 node-b:255 node-c:515]
}

func ExampleLeastPartitions() {
	in := placement.Input{
		Nodes:      []placement.Node{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}},
		Partitions: 12, Strategy: placement.LeastPartitions(1, 3),
	}
	table, _ := placement.Compute(in)
	fmt.Println(table.Balance().Counts)

	in.Nodes = append(in.Nodes, placement.Node{ID: "c", Weight: 1})
	assigned := assignment.Record(table, assignment.Coordinator{ID: "a"})
	for range 3 { // an agent does this by itself
		in.Memory = assigned
		table, _ = placement.Compute(in)
		fmt.Println(table.Balance().Counts)
		assigned, _ = assignment.Level(table, assignment.Coordinator{ID: "a"}, assigned.Version(), false)
	}
	fmt.Println(table.Why(0))
	// Output:
	// map[a:6 b:6]
	// map[a:6 b:6 c:0]
	// map[a:4 b:5 c:3]
	// map[a:4 b:4 c:4]
	// a moved it from a to c, to even out the load, in version 2 of the assignment
}

// A ring can be the strategy of a table, and therefore of a cluster. It ignores the weight of node-c.
func ExampleClassicRing() {
	table, err := placement.Compute(placement.Input{
		Nodes:      []placement.Node{{ID: "node-a", Weight: 1}, {ID: "node-b", Weight: 1}, {ID: "node-c", Weight: 2}},
		Partitions: placement.DefaultPartitions,
		Strategy:   placement.ClassicRing(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Balance().Counts)
	// Output:
	// map[node-a:351 node-b:343 node-c:330]
}

// The replicas of a partition are in different zones, and replicas in the reader's zone come first.
func ExampleZoned() {
	table, err := placement.Compute(placement.Input{
		Nodes: []placement.Node{
			{ID: "a1", Weight: 1, Zone: "a"},
			{ID: "a2", Weight: 1, Zone: "a"},
			{ID: "b1", Weight: 1, Zone: "b"},
			{ID: "b2", Weight: 1, Zone: "b"},
		},
		Partitions: placement.DefaultPartitions,
		Strategy:   placement.Zoned(nil),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := placement.Of("room-8842", table.Partitions())
	fmt.Println(table.Rank(p, 2))
	fmt.Println(table.RankNear(p, 2, "a"))
	// Output:
	// [b1 a1]
	// [a1 b1]
}

// Each tenant uses only a few of the nodes, so a tenant that overloads its nodes affects few other tenants.
func ExampleTable_Subset() {
	var nodes []placement.Node
	for _, id := range []lease.NodeID{"a", "b", "c", "d", "e", "f"} {
		nodes = append(nodes, placement.Node{ID: id, Weight: 1})
	}
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: placement.DefaultPartitions})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Subset("tenant-1", 2))
	fmt.Println(table.Subset("tenant-2", 2))
	// Output:
	// [b c]
	// [a f]
}
