// Rooms shows a call that survives the death of its media server: it is resolved
// to a node, hosted there, and its client is brought to the next one.
//
//	go run ./examples/rooms
//	go run ./examples/rooms -redis redis://127.0.0.1:6379
//
// All nodes run in this process, so that they can share a store in its memory. In
// earnest each is a process of its own, and the store is a Redis.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement/affinity"
	"github.com/roost-cluster/roost/placement/affinity/redisstore"
)

// node is a media server: the agent of its cluster and its rooms.
type node struct {
	agent *cluster.Agent
	rooms *affinity.Resolver
}

func main() {
	url := flag.String("redis", "", "URL of a Redis (default: this process's memory)")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	var store affinity.Store = affinity.NewMemory()
	if url != "" {
		redis, err := redisstore.Open(ctx, redisstore.Options{URL: url, Prefix: "roost-example:"})
		if err != nil {
			return err
		}
		defer func() { _ = redis.Close() }()
		store = redis
	}
	nodes := make(map[lease.NodeID]*node)
	var seeds []string
	for _, id := range []lease.NodeID{"a", "b", "c"} {
		n, err := start(ctx, id, seeds, store)
		if err != nil {
			return err
		}
		defer n.kill()
		nodes[id], seeds = n, append(seeds, n.agent.Addr())
	}
	return call(ctx, "standup", nodes)
}

// call is the story of one room.
func call(ctx context.Context, room string, nodes map[lease.NodeID]*node) error {
	// A client is sent to the room's node. Any node can say which; that one checks.
	a, err := nodes["a"].rooms.Resolve(ctx, room, affinity.Demand{Size: 4})
	if err != nil {
		return err
	}
	fmt.Printf("%s lives on %s: %s\n", room, a.Node, a.Reason)
	connect := func(ctx context.Context, d affinity.Directive) error {
		hosting, err := nodes[d.To].rooms.Host(ctx, room, affinity.Demand{Size: 4})
		if err == nil {
			fmt.Printf("connected to %s, which hosts %s (epoch %d)\n", d.To, hosting.Room(), hosting.Epoch())
		}
		return err
	}
	if err := connect(ctx, affinity.Directive{Room: room, To: a.Node}); err != nil {
		return err
	}

	// Its node dies. The others find the room a new home and tell whoever listens,
	// such as the server that signals to the client.
	victim, witness := nodes[a.Node], nodes["a"]
	if witness == victim {
		witness = nodes["b"]
	}
	moves := witness.rooms.Moves(ctx)
	if _, err := witness.rooms.Lookup(ctx, room); err != nil { // it is told of rooms that it knows
		return err
	}
	fmt.Printf("%s dies\n", a.Node)
	victim.kill()
	for batch := range moves {
		m := batch.Moved[0]
		fmt.Printf("%s moved from %s to %s: %s\n", m.Room, m.From.Node, m.To.Node, m.Reason)
		client := affinity.Reconnector{
			Connect: connect,
			Resolve: func(ctx context.Context, room string) (affinity.Directive, error) {
				a, err := witness.rooms.Resolve(ctx, room, affinity.Demand{})
				return affinity.Directive{Room: room, To: a.Node, Epoch: a.Epoch}, err
			},
			Log: slog.New(slog.DiscardHandler),
		}
		return client.Run(ctx, m.Directive("")) // three attempts, then one fresh resolve
	}
	return ctx.Err()
}

func start(ctx context.Context, id lease.NodeID, seeds []string, store affinity.Store) (*node, error) {
	quiet := slog.New(slog.DiscardHandler)
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: string(id), Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local, Capacity: 1000,
		HeartbeatInterval: 100 * time.Millisecond, Log: quiet,
	})
	if err != nil {
		return nil, err
	}
	if err := agent.WaitConverged(ctx); err != nil {
		return nil, err
	}
	rooms, err := affinity.Start(agent, store, affinity.Config{ReportLoad: true, Log: quiet})
	return &node{agent, rooms}, err
}

// kill ends the node without a farewell to the others.
func (n *node) kill() { _, _ = n.rooms.Close(), n.agent.Close() }
