package placement_test

import (
	"fmt"
	"strconv"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A ring without a table: who has a room, who is next, and what a node more moves.
func ExampleRing() {
	ring, err := placement.NewRing("node-a", "node-b", "node-c")
	if err != nil {
		fmt.Println(err)
		return
	}
	owner, _ := ring.Owner("r-8842")
	fmt.Println("owner:", owner)
	fmt.Println("owners:", ring.Owners("r-8842", 2))

	grown, err := ring.With("node-d")
	if err != nil {
		fmt.Println(err)
		return
	}
	moved := map[lease.NodeID]int{}
	for i := range 1000 {
		room := "r-" + strconv.Itoa(i)
		before, _ := ring.Owner(room)
		if now, _ := grown.Owner(room); now != before {
			moved[now]++
		}
	}
	fmt.Println("moved:", moved)
	// Output:
	// owner: node-c
	// owners: [node-c node-b]
	// moved: map[node-d:247]
}

// The ring as the strategy of a table, and so of a cluster. It does not heed that
// node-c weighs twice as much.
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
