package routinggrpc_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
)

// A server with an embedded agent rejects calls for keys that other servers own. A gateway sends each call to the owner
// of its key.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// Each node runs such a server.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", Bind: "127.0.0.1:0", APIAddr: l.Addr().String(), Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = agent.Close() }()
	api := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	defer api.Close()
	check := routinggrpc.Check{Owns: agent.Arrived}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(check.Unary), grpc.ChainStreamInterceptor(check.Stream))
	grpc_testing.RegisterTestServiceServer(srv, &greeter{id: "node-1"})
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()

	// The gateway.
	c, err := routing.Start(ctx, routing.Config{Agents: []string{api.URL}, Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: routinggrpc.FromClient(c)})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("roost:///", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()

	client := grpc_testing.NewTestServiceClient(conn)
	reply, err := client.UnaryCall(routinggrpc.WithKey(ctx, "room-17"), &grpc_testing.SimpleRequest{})
	fmt.Println(reply.GetServerId(), err)
	// Output: node-1 <nil>
}

type greeter struct {
	grpc_testing.UnimplementedTestServiceServer
	id string
}

func (g *greeter) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{ServerId: g.id}, nil
}

// A member of the cluster does not need a routing client, because its agent has the table.
func ExampleTableOf() {
	agent, err := cluster.Start(context.Background(), cluster.Config{ID: "node-1", Bind: "127.0.0.1:0", APIAddr: "127.0.0.1:9000", Log: quiet})
	if err != nil {
		panic(err)
	}
	defer func() { _ = agent.Close() }()
	table := routinggrpc.TableOf(agent, func(m *cluster.Member) string { return m.APIAddr })
	opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: table})
	fmt.Println(len(opts) > 0, err)
	// Output: true <nil>
}
