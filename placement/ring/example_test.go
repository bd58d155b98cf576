package ring_test

import (
	"fmt"

	"github.com/roost-cluster/roost/placement/ring"
)

// Owner returns the owner of a room, and Owners also returns the next node.
func ExampleRing() {
	r, err := ring.New("node-a", "node-b", "node-c")
	if err != nil {
		fmt.Println(err)
		return
	}
	owner, _ := r.Owner("r-8842")
	fmt.Println("owner:", owner)
	fmt.Println("owners:", r.Owners("r-8842", 2))
	// Output:
	// owner: node-c
	// owners: [node-c node-b]
}
