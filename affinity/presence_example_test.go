package affinity_test

import (
	"context"
	"fmt"
	"log"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/placement"
)

// Two nodes share a store; either one can tell who is in a room. A participant is a
// connection, so that ada with two of them is there until the last one is gone.
func ExamplePresence() {
	ctx := context.Background()
	store := affinity.NewMemoryPresence() // nodes in several processes: redisstore
	a, err := affinity.StartPresence(store, placement.DefaultPartitions, affinity.SFUPresence())
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := affinity.StartPresence(store, placement.DefaultPartitions, affinity.SFUPresence())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	_ = a.Join(ctx, "standup", "ada/phone")
	_ = b.Join(ctx, "standup", "ada/laptop")
	_ = b.Join(ctx, "standup", "bob/laptop")
	_ = a.Leave(ctx, "standup", "ada/phone")

	members, _ := a.Members(ctx, "standup")
	for _, m := range members {
		fmt.Println(m.Participant, "is", m.User())
	}
	size, _ := b.Count(ctx, "standup")
	fmt.Println("costs", affinity.FullMesh(size), "streams")
	// Output:
	// ada/laptop is ada
	// bob/laptop is bob
	// costs 2 streams
}
