// Rooms shows a call that survives the death of its media server: it is resolved
// to a node, hosted there, and its client is brought to the next one.
//
//	go run ./examples/rooms
//	go run ./examples/rooms -redis redis://127.0.0.1:6379
//
// All nodes run in this process, so that they can share a store in its memory. In
// earnest each is a process of its own, and the store is a Redis.
//
//docstest:text standup moved from … standup moved from
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/reconnect"
)

func main() {
	url := flag.String("redis", "", "URL of a Redis (default: this process's memory)")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError) // the story is enough to read
	ctx := context.Background()
	var store affinity.Store = affinity.NewMemory()
	if *url != "" {
		redis, err := redisstore.Open(ctx, redisstore.Options{URL: *url, Prefix: "roost-example:"})
		check(err)
		store = redis
	}
	// a, b and c are media servers. Clients knock at the door, which hosts nothing.
	agents := make(map[lease.NodeID]*cluster.Agent)
	rooms := make(map[lease.NodeID]*affinity.Resolver)
	var seeds []string
	for _, id := range []lease.NodeID{"door", "a", "b", "c"} {
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: string(id), Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local,
			Capacity: 1000, StartDraining: id == "door",
		})
		check(err)
		check(agent.WaitConverged(ctx))
		agents[id], seeds = agent, append(seeds, agent.Addr())
		rooms[id], err = affinity.Start(agent, store, affinity.Config{ReportLoad: true})
		check(err)
	}

	// A client asks where its room lives. Any node can say.
	resolve := func(ctx context.Context, room string) (reconnect.Directive, error) {
		a, err := rooms["door"].Resolve(ctx, room, affinity.Demand{Size: 4})
		return reconnect.Directive{Room: room, To: a.Node, Reason: a.Reason, Epoch: a.Epoch}, err
	}
	// Then it connects to that node, which checks that it is the one.
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

	// Its node dies. The other nodes re-home the room, and publish the
	// move; the door passes it on to the client, which reconnects.
	moves := rooms["door"].Moves(ctx)
	fmt.Printf("%s dies\n", home.To)
	_, _ = rooms[home.To].Close(), agents[home.To].Close()
	for batch := range moves {
		m := batch.Moved[0]
		fmt.Printf("%s moved from %s to %s: %s\n", m.Room, m.From.Node, m.To.Node, m.Reason)
		client := reconnect.Driver{Connect: connect, Resolve: resolve}
		check(client.Run(ctx, m.Directive(""))) // three attempts, then one fresh resolve
		return
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
