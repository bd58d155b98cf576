// Rooms shows a call that survives the death of its media server. A client resolves its room to a node, and connects to
// this node, which hosts the room. When the node dies, the client moves to the room's next node.
//
//	go run ./examples/rooms
//	go run ./examples/rooms -redis redis://127.0.0.1:6379
//
// All nodes run in this process, so that they can share a store in memory. In production, each is a separate
// process, and the store is a Redis.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/lease"
)

func main() {
	url := flag.String("redis", "", "URL of a Redis (default: memory of this process)")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError) // the output already shows what happens
	ctx := context.Background()
	var store pinstore.Store = pinstore.NewMemory()
	if *url != "" {
		redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: *url})
		check(err)
		store, err = redisstore.New(redis, redisstore.Options{Prefix: "roost-example:"})
		check(err)
	}
	// a, b and c are media servers. The door is a node that hosts nothing. Clients ask it first.
	agents := make(map[lease.NodeID]*cluster.Agent)
	rooms := make(map[lease.NodeID]*affinity.Resolver)
	var seeds []string
	for _, id := range []lease.NodeID{"door", "a", "b", "c"} {
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: string(id), Cluster: "roost-example", Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local,
			Capacity: 1000, StartDraining: id == "door",
		})
		check(err)
		check(agent.WaitConverged(ctx))
		agents[id], seeds = agent, append(seeds, agent.Addr())
		rooms[id], err = affinity.Start(agent, store, affinity.Config{ReportLoad: true})
		check(err)
	}

	// A client asks for the node of its room. Any node can answer.
	resolve := func(ctx context.Context, room string) (reconnect.Directive, error) {
		a, err := rooms["door"].Resolve(ctx, room, affinity.Demand{Size: 4})
		return a.Directive(), err
	}
	// Then the client connects to that node, which checks the pin.
	connect := func(ctx context.Context, d reconnect.Directive) error {
		hosting, err := rooms[d.To].Host(ctx, d.Room, affinity.Demand{Size: 4})
		if err == nil {
			fmt.Printf("connected to %s, which hosts %s (epoch %d)\n", d.To, d.Room, hosting.Epoch())
		}
		return err
	}
	home, err := resolve(ctx, "standup")
	check(err)
	fmt.Printf("%s lives on %s: %s\n", home.Room, home.To, home.Reason)
	check(connect(ctx, home))

	// The node dies. The other nodes pin the room to one of them, and notify all nodes that know the room. The door
	// notifies the client, which reconnects.
	moves := rooms["door"].Moves(ctx)
	fmt.Printf("%s dies\n", home.To)
	_, _ = rooms[home.To].Close(), agents[home.To].Close()
	for batch := range moves {
		next, err := directive(ctx, batch, home, resolve)
		check(err)
		if next.Epoch == home.Epoch { // not this room
			continue
		}
		client := reconnect.Driver{Connect: connect, Resolve: resolve}
		check(client.Follow(ctx, next)) // three attempts, then one fresh resolve
		return
	}
}

// directive returns where the room of home lives after a batch of moves.
func directive(
	ctx context.Context,
	batch affinity.MovedBatch,
	home reconnect.Directive,
	resolve func(context.Context, string) (reconnect.Directive, error),
) (reconnect.Directive, error) {
	if batch.Resync { // moves were dropped, perhaps this room's
		return resolve(ctx, home.Room)
	}
	for _, m := range batch.Moved {
		if m.Room == home.Room {
			fmt.Printf("%s moved from %s to %s: %s\n", m.Room, m.From.Node, m.To.Node, m.Reason)
			return m.Directive(), nil
		}
	}
	return home, nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
