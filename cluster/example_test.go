package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

// A node joins, looks up a room, and runs a function for each partition that it owns.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID:      "node-1",
		Bind:    "127.0.0.1:0",              // where nodes gossip
		APIAddr: "media-1.example.org:3478", // what lookups answer
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
		<-owned.Done() // … until the node loses it
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

// Watch returns changes as a sequence of batches. The first batch contains everything that the node owns at that time.
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

// History lists what a node saw, even after the node has ended.
func ExampleAgent_History() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Bootstrap: true, Partitions: 8, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-agent.Ready()
	if err := agent.Leave(ctx); err != nil {
		fmt.Println(err)
	}
	for _, e := range agent.History().Events {
		fmt.Printf("%s %q %q\n", e.Kind, e.Member, e.Reason)
	}
	// Output:
	// started "node-1" ""
	// ready "node-1" ""
	// draining "node-1" "draining"
	// moved "" ""
	// stopped "node-1" "left"
}

// A node that is about to be stopped drains, so other nodes take over without waiting for a timeout.
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

// With handoff, the next owner of a partition runs its function only when the function has returned on the previous
// owner.
func ExampleConfig_handoff() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	defer wait.Wait()
	runs := make([]atomic.Int64, 8) // runs of each partition, on all nodes
	start := func(id string, seeds ...string) *cluster.Agent {
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: id, Bind: "127.0.0.1:0", Join: seeds, Partitions: len(runs), Network: cluster.Local,
			Handoff: 20 * time.Second, LeaseTTL: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			panic(err)
		}
		wait.Go(func() {
			_ = agent.RunOwned(ctx, func(owned context.Context, p placement.Partition) {
				if runs[p].Add(1) > 1 {
					fmt.Println("two runs of a partition")
				}
				defer runs[p].Add(-1)
				<-owned.Done()
				time.Sleep(10 * time.Millisecond) // write to disk, notify clients
			})
		})
		return agent
	}
	a := start("a")
	<-a.Ready()
	b := start("b", a.Addr())
	defer b.Close()
	if err := b.WaitConverged(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("a leaves:", a.Leave(ctx))
	for p := range runs {
		for runs[p].Load() != 1 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Println("b owns", len(b.Owned()))
	// Output:
	// a leaves: <nil>
	// b owns 8
}

// A scope is a ring over the members of one service. The ring over all members still exists.
func ExampleAgent_Scope() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Labels: map[string]string{"service": "recorder"}, Partitions: 8, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	<-agent.Ready()

	recorders, err := agent.Scope("recorders", func(m *cluster.Member) bool { return m.Labels["service"] == "recorder" })
	if err != nil {
		fmt.Println(err)
		return
	}
	owner, err := recorders.Place("room-17")
	fmt.Println(owner.ID, err, recorders.IsOwner("room-17"))

	mixers, err := agent.Scope("mixers", func(m *cluster.Member) bool { return m.Labels["service"] == "mixer" })
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = mixers.Place("room-17")
	fmt.Println("no mixer:", errors.Is(err, cluster.ErrEmptyScope))
	// Output:
	// node-1 <nil> true
	// no mixer: true
}

// RunOwned calls a function for each partition that this node acquires, and cancels the function's context when the
// node loses the partition.
func ExampleAgent_RunOwned() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Partitions: 4, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	<-agent.Ready()

	var started sync.WaitGroup
	started.Add(len(agent.Owned()))
	ended := make(chan struct{})
	var stopped atomic.Int64
	go func() {
		defer close(ended)
		_ = agent.RunOwned(ctx, func(owned context.Context, _ placement.Partition) {
			started.Done()
			<-owned.Done()
			stopped.Add(1) // clean up here, because another node starts its run
		})
	}()
	started.Wait()
	fmt.Println("running:", len(agent.Owned()))
	if err := agent.Leave(ctx); err != nil { // waits until the functions have returned
		fmt.Println(err)
	}
	<-ended
	fmt.Println("stopped:", stopped.Load())
	// Output:
	// running: 4
	// stopped: 4
}

// A lookup fails while no node can own anything. The error says why, and what to do.
func ExampleAgent_Place() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", APIAddr: "media-1.example.org:3478", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	<-agent.Ready()

	owner, err := agent.Place("room-17")
	fmt.Println(owner.APIAddr, err)

	if err := agent.Drain(ctx); err != nil {
		fmt.Println(err)
	}
	_, err = agent.Place("room-17")
	fmt.Println(errors.Is(err, cluster.ErrNoMembers))
	// Output:
	// media-1.example.org:3478 <nil>
	// true
}

// Labels follow the application's state while the agent runs.
func ExampleAgent_SetLabels() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Labels: map[string]string{"codec": "vp8"}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	<-agent.Ready()

	if err := agent.SetLabels(map[string]string{"codec": "av1"}); err != nil {
		fmt.Println(err)
	}
	self, _ := agent.Member("node-1")
	fmt.Println(self.Labels["codec"])
	// Output: av1
}
