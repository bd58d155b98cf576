package ring_test

import (
	"fmt"
	"strconv"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement/ring"
)

// The owner of a room, the next in line, and the rooms that one more node moves.
func ExampleRing() {
	before, err := ring.New("node-a", "node-b", "node-c")
	if err != nil {
		fmt.Println(err)
		return
	}
	owner, _ := before.Owner("r-8842")
	fmt.Println("owner:", owner)
	fmt.Println("owners:", before.Owners("r-8842", 2))

	grown, err := before.With("node-d")
	if err != nil {
		fmt.Println(err)
		return
	}
	moved := map[lease.NodeID]int{}
	for i := range 1000 {
		room := "r-" + strconv.Itoa(i)
		was, _ := before.Owner(room)
		if now, _ := grown.Owner(room); now != was {
			moved[now]++
		}
	}
	fmt.Println("moved:", moved)
	// Output:
	// owner: node-c
	// owners: [node-c node-b]
	// moved: map[node-d:247]
}
