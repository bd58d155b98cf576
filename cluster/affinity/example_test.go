package affinity_test

import (
	"encoding/json"
	"fmt"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// A signalling server turns what moved into directives for its clients.
func ExampleMoved_Directive() {
	moved := affinity.Moved{
		Room: "standup", From: lease.Incarnation{Node: "node-a", Number: 1},
		To: lease.Incarnation{Node: "node-b", Number: 1}, Reason: "node-a died", Epoch: 7, Addr: "b.example:443",
	}
	message, err := json.Marshal(moved.Directive())
	fmt.Println(string(message), err)
	// Output:
	// {"room":"standup","to":"node-b","addr":"b.example:443","reason":"node-a died","epoch":7} <nil>
}
