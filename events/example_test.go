package events_test

import (
	"context"
	"fmt"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// node publishes the states of node-a. In a real program, the agent does this.
type node struct {
	feed  events.Feed
	state *events.State
}

// sees publishes a state in which these nodes are live and share four partitions.
func (n *node) sees(ids ...lease.NodeID) *events.State {
	in := placement.Input{Partitions: 4}
	var members []lease.Incarnation
	for _, id := range ids {
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
		members = append(members, lease.Incarnation{Node: id, Number: 1})
	}
	table, err := placement.Compute(in)
	if err != nil {
		panic(err)
	}
	n.state = events.Next(n.state, "node-a", table, members, true)
	n.feed.Publish(n.state)
	return n.state
}

func ExampleDiff() {
	var n node
	alone := n.sees("node-a")
	both := n.sees("node-a", "node-b")
	batch := events.Diff(alone, both)
	fmt.Println("joined:", batch.Joined)
	for i, move := range batch.Moved {
		fmt.Println("moved:", move.Partition, move.From, "to", move.To)
		fmt.Println("released:", batch.Released[i].Partition, "owned since version", batch.Released[i].Since)
	}
	// Output:
	// joined: [node-b]
	// moved: 0 node-a to node-b
	// released: 0 owned since version 1
	// moved: 1 node-a to node-b
	// released: 1 owned since version 1
	// moved: 3 node-a to node-b
	// released: 3 owned since version 1
}

func ExampleWatch() {
	var n node
	n.sees("node-a")
	for batch := range events.Watch(context.Background(), &n.feed) {
		for _, o := range batch.Released {
			fmt.Println("released", o.Partition)
		}
		for _, o := range batch.Acquired {
			fmt.Println("acquired", o.Partition)
		}
		fmt.Println("that was version", batch.Version)

		switch batch.Version { // the cluster changes
		case 1:
			n.sees("node-a", "node-b")
		case 2:
			n.sees("node-a", "node-b") // a refresh, so no batch
			n.feed.Close()
		}
	}
	// Output:
	// acquired 0
	// acquired 1
	// acquired 2
	// acquired 3
	// that was version 1
	// released 0
	// released 1
	// released 3
	// that was version 2
}

func ExampleSubscribe() {
	var n node
	n.sees("node-a", "node-b")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	quit := make(chan struct{})
	batches := events.Subscribe(ctx, &n.feed)
	for {
		select {
		case batch, open := <-batches:
			if !open {
				fmt.Println("the end")
				return
			}
			fmt.Println("released", len(batch.Released), "acquired", len(batch.Acquired))
			if batch.Version == 1 {
				n.sees("node-a") // node-b is gone
			} else {
				close(quit)
			}
		case <-quit:
			quit = nil
			cancel()
		}
	}
	// Output:
	// released 0 acquired 1
	// released 0 acquired 3
	// the end
}

func ExampleRunOwned() {
	var n node
	n.sees("node-a")

	working := make(chan placement.Partition)
	go func() {
		for range 4 {
			<-working // all four partitions
		}
		fmt.Println("node-b joins")
		n.sees("node-a", "node-b")
		n.feed.Close()
	}()
	err := events.RunOwned(context.Background(), &n.feed, func(ctx context.Context, p placement.Partition) {
		working <- p
		<-ctx.Done() // work until the partition is released
		fmt.Println("partition", p, "ends:", context.Cause(ctx))
	})
	fmt.Println(err)
	// Unordered output:
	// node-b joins
	// partition 0 ends: events: partition released
	// partition 1 ends: events: partition released
	// partition 3 ends: events: partition released
	// partition 2 ends: events: feed closed
	// events: feed closed
}
