package affinity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// A signalling server turns the moves of rooms into directives for its clients.
func ExampleMoved_Directive() {
	moved := affinity.Moved{
		Room: "standup", From: lease.Incarnation{Node: "node-a", Number: 1},
		To: lease.Incarnation{Node: "node-b", Number: 1}, Reason: "node-a died", Epoch: 7, Addr: "b.example:443",
	}
	message, err := json.Marshal(moved.Directive())
	fmt.Println(string(message), err)
	// Output:
	// {"room":"standup","to":"node-b","addr":"b.example:443","reason":"node-a died","epoch":7} <nil>
}

// exampleNode starts a cluster of one node and returns the node's Resolver.
func exampleNode() (*affinity.Resolver, func()) {
	log := slog.New(slog.DiscardHandler)
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Partitions: 8, APIAddr: "media-1.example.org:443", Log: log,
	})
	if err != nil {
		panic(err)
	}
	<-agent.Ready()
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: log})
	if err != nil {
		panic(err)
	}
	return rooms, func() { _, _ = rooms.Close(), agent.Close() }
}

// A media server serves each participant in a separate call.
func ExampleResolver_Serve() {
	rooms, end := exampleNode()
	defer end()
	err := rooms.Serve(context.Background(), "standup", affinity.Demand{}, func(_ context.Context, h *affinity.Hosting) error {
		hosted, _ := rooms.Hosted()
		fmt.Println(h.Room(), "has", hosted[0].Size, "participant")
		return nil // the participant left; one who stays waits for the context
	})
	fmt.Println(err)
	// Output:
	// standup has 1 participant
	// <nil>
}

// A signalling server sends a client to the node of its room, and again whenever the room gets another node.
func ExampleResolver_Follow() {
	rooms, end := exampleNode()
	defer end()
	ctx := context.Background()
	if _, err := rooms.Resolve(ctx, "standup", affinity.Demand{Size: 4}); err != nil {
		fmt.Println(err)
	}
	for d := range rooms.Follow(ctx, "standup") {
		fmt.Println(d.Room, "lives on", d.To, "at", d.Addr)
		return // a server serves until the client disconnects
	}
	// Output:
	// standup lives on node-1 at media-1.example.org:443
}

// A room with too many subscribers for one node gets relays on other nodes. Here it gets none, because the cluster has
// only one node.
func ExampleResolver_Relays() {
	rooms, end := exampleNode()
	defer end()
	ctx := context.Background()
	if _, err := rooms.Resolve(ctx, "webinar", affinity.Demand{Size: 4, Prefer: []string{"zone:eu-1", "region:eu"}}); err != nil {
		fmt.Println(err)
	}
	relays, err := rooms.Relays(ctx, "webinar", affinity.Demand{Publishers: 1, Subscribers: 900}, 2)
	fmt.Println(len(relays), "relays", err)
	a, err := rooms.ResolveApart(ctx, "webinar~1", affinity.Demand{Publishers: 1, Subscribers: 300}, "webinar")
	fmt.Println(a.Room, "lives on", a.Node, err)
	// Output:
	// 0 relays <nil>
	// webinar~1 lives on node-1 <nil>
}

// Any node can ask where a room lives. The room's node hosts it before it accepts a client.
func ExampleResolver_Host() {
	rooms, end := exampleNode()
	defer end()
	ctx := context.Background()
	at, err := rooms.Resolve(ctx, "standup", affinity.Demand{Size: 4})
	fmt.Println("send the client to", at.Node, err)

	hosting, err := rooms.Host(ctx, "standup", affinity.Demand{Size: 4}) // on that node
	if err != nil {
		fmt.Println(err) // a *NotOwnerError names another node
		return
	}
	hosting.Touch(3) // someone has left
	fmt.Println("released:", hosting.Release(ctx))
	<-hosting.Lost()
	fmt.Println(hosting.Err())
	// Output:
	// send the client to node-1 <nil>
	// released: <nil>
	// affinity: released
}

// Explain tells people why a room lives where it does.
func ExampleResolver_Explain() {
	rooms, end := exampleNode()
	defer end()
	why, err := rooms.Explain(context.Background(), "standup", affinity.Demand{Size: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("pinned:", why.Pinned)
	for _, c := range why.Candidates {
		fmt.Println(c.Member.ID, c.Taken)
	}
	// Output:
	// pinned: false
	// node-1 true
}
