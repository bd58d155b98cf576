package pinstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Two nodes claim a room. The first claim wins, and the second claim returns the existing pin.
func ExampleStore() {
	var store pinstore.Store = pinstore.NewMemory()
	for _, node := range []lease.NodeID{"media-1", "media-2"} {
		claim := pinstore.Op{
			Room: "standup", TTL: time.Hour,
			Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: node, Number: 1}, Size: 4},
		}
		res := store.Swap(context.Background(), claim)[0]
		fmt.Println(node, "claims:", res.Done, "the room lives on", res.Pin.Node)
	}
	// Output:
	// media-1 claims: true the room lives on media-1
	// media-2 claims: false the room lives on media-1
}
