package evacuate_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Before a deploy stops a node, the node's rooms move to another node.
func ExampleRun() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := pinstore.NewMemory() // use redisstore if the nodes are separate processes
	start := func(id string, seeds ...string) (*cluster.Agent, *affinity.Resolver) {
		quiet := slog.New(slog.DiscardHandler)
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: id, Bind: "127.0.0.1:0", Join: seeds, Capacity: 100, Network: cluster.Local, Log: quiet,
		})
		if err != nil {
			panic(err)
		}
		<-agent.Ready()
		rooms, err := affinity.Start(agent, store, affinity.Config{ReportLoad: true, Log: quiet})
		if err != nil {
			panic(err)
		}
		return agent, rooms
	}
	a, rooms := start("media-a")
	b, others := start("media-b", a.Addr())
	defer func() { _, _ = others.Close(), b.Close() }()
	if err := a.WaitConverged(ctx); err != nil {
		fmt.Println(err)
	}
	for _, room := range []string{"standup", "retro"} {
		if _, err := rooms.Pin(ctx, room, lease.NodeID("media-a"), affinity.Demand{Size: 3}); err != nil {
			fmt.Println(err)
		}
	}

	if err := a.Drain(ctx); err != nil { // from here on, the node gets no new rooms
		fmt.Println(err)
	}
	if err := evacuate.Run(ctx, a, rooms, evacuate.Plan{Rate: 50, Deadline: time.Minute}, nil); err != nil {
		fmt.Println(err)
	}
	at, err := others.Lookup(ctx, "standup")
	fmt.Println("standup is on", at.Node, err)
	fmt.Println("a leaves:", a.Leave(ctx))
	// Output:
	// standup is on media-b <nil>
	// a leaves: <nil>
}
