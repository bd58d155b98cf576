package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

// A node that joins, looks a room up, and runs something for each partition
// that it owns.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID:      "node-1",
		Bind:    "127.0.0.1:0",              // where nodes gossip
		APIAddr: "media-1.example.org:3478", // what look-ups answer
		Join:    nil,                        // seeds; none for the first node
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Leave(ctx)
	<-agent.Ready()

	owner, err := agent.Place("room-17")
	fmt.Println(owner.ID, owner.APIAddr, err)
	fmt.Println("mine:", agent.IsOwner("room-17"))

	started := make(chan placement.Partition, agent.Config().Partitions)
	go agent.RunOwned(ctx, func(owned context.Context, p placement.Partition) {
		started <- p   // serve the rooms of p …
		<-owned.Done() // … until it is owned no longer
	})
	for range agent.Config().Partitions {
		<-started
	}
	fmt.Println("runs for all partitions")
	// Output:
	// node-1 media-1.example.org:3478 <nil>
	// mine: true
	// runs for all partitions
}

// What changed, as a sequence: the first batch holds everything owned so far.
func ExampleAgent_Watch() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Partitions: 8, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	for batch := range agent.Watch(ctx) {
		fmt.Println("released", len(batch.Released), "acquired", len(batch.Acquired), "joined", batch.Joined)
		break
	}
	// Output: released 0 acquired 8 joined [node-1]
}

// A node that is about to be stopped hands over without waiting for a timeout.
func ExampleAgent_Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	<-agent.Ready()
	fmt.Println("before:", len(agent.Owned()))
	if err := agent.Drain(ctx); err != nil { // returns when all members agree
		fmt.Println(err)
	}
	fmt.Println("after:", len(agent.Owned()))
	// Output:
	// before: 1024
	// after: 0
}
