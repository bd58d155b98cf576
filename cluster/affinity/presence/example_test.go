package presence_test

import (
	"context"
	"fmt"
	"log"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/placement"
)

// Two nodes share a store, and each node can list all participants. A participant is a connection, so ada with two
// connections is present until the second connection leaves.
func Example() {
	ctx := context.Background()
	store := presence.NewMemory() // use redisstore if the nodes are separate processes
	a, err := presence.Start(store, placement.DefaultPartitions, presence.SFU())
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := presence.Start(store, placement.DefaultPartitions, presence.SFU())
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
		fmt.Println(m.Name, "is", m.User())
	}
	size, _ := b.Count(ctx, "standup")
	fmt.Println(size, "connections")
	// Output:
	// ada/laptop is ada
	// bob/laptop is bob
	// 2 connections
}
