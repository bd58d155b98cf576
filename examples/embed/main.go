// Embed runs a node that prints how many partitions it gains and loses, and which node owns one key. The
// README shows how to run it.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/roost-cluster/roost/cluster"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the agent's info lines
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	agent, err := cluster.Start(ctx, cluster.Config{ // ctx limits only the start
		ID:   os.Args[1],  // unique, and the same after a restart
		Bind: os.Args[2],  // gossip, over UDP and TCP
		Join: os.Args[3:], // addresses of nodes that already run
	})
	if err != nil {
		log.Fatal(err)
	}
	for batch := range agent.Watch(ctx) { // until Ctrl-C
		fmt.Printf("%d partitions gained, %d lost\n", len(batch.Acquired), len(batch.Released))
		if owner, err := agent.Place("room-1"); err == nil { // from memory, in nanoseconds
			fmt.Println("room-1 is on", owner.ID)
		}
	}
	if err := agent.Leave(context.Background()); err != nil { // the others take over at once
		log.Fatal(err)
	}
}
