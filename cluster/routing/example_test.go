package routing_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
)

// A gateway looks up the node for each request in a routing client.
func Example() {
	// In another process, an agent serves its HTTP API, like roost agent --http.
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", APIAddr: "media-1.example.org:443", Log: quiet,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = agent.Close() }()
	api := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	defer api.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := routing.Start(ctx, routing.Config{Agents: []string{api.URL}, Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	select {
	case <-c.Ready():
	case <-ctx.Done():
		panic(c.Status().Err)
	}
	owner, err := c.Place("room-17")
	fmt.Println(owner.ID, owner.APIAddr, err)
	fmt.Println("fresh:", c.Age() < time.Minute)
	// Output:
	// node-1 media-1.example.org:443 <nil>
	// fresh: true
}

// A routing client tells a client outside of the cluster which node hosts its room, now and after each move.
func ExampleClient_Follow() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", Bind: "127.0.0.1:0", APIAddr: "media-1.example.org:443", Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = agent.Close() }()
	<-agent.Ready()
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: quiet}) // like roost agent --redis
	if err != nil {
		panic(err)
	}
	defer func() { _ = rooms.Close() }()
	api := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Rooms: rooms, Log: quiet}))
	defer api.Close()

	c, err := routing.Start(ctx, routing.Config{Agents: []string{api.URL}, Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	resolve := func(ctx context.Context, room string) (reconnect.Directive, error) { return c.Resolve(ctx, room, 4) }
	client := reconnect.Driver{Resolve: resolve, Connect: func(_ context.Context, d reconnect.Directive) error {
		fmt.Println("connected to", d.Addr)
		return nil
	}}
	if _, err := resolve(ctx, "standup"); err != nil { // the first participant pins the room
		panic(err)
	}
	for d := range c.Follow(ctx, "standup") {
		fmt.Println(client.Follow(ctx, d))
		break // or until the participant leaves
	}
	// Output:
	// connected to media-1.example.org:443
	// <nil>
}
