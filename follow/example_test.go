package follow_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/follow"
)

// A gateway asks a follower for the node of each request.
func Example() {
	// Somewhere else: an agent with its API, as roost agent --http has it.
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
	f, err := follow.Start(ctx, follow.Config{Agents: []string{api.URL}, Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = f.Close() }()
	select {
	case <-f.Ready():
	case <-ctx.Done():
		panic(f.Status().Err)
	}
	owner, err := f.Place("room-17")
	fmt.Println(owner.ID, owner.APIAddr, err)
	fmt.Println("fresh:", f.Age() < time.Minute)
	// Output:
	// node-1 media-1.example.org:443 <nil>
	// fresh: true
}
