package routinggrpc_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
)

// pickers contains the latest picker of each target.
var pickers sync.Map

// watchPickers wraps the balancers, so that benchmarks can find their pickers. TestMain calls it.
func watchPickers() {
	for _, name := range []string{"roost", "round_robin"} {
		balancer.Register(watched{balancer.Get(name)})
	}
}

// watched is a balancer that records its pickers.
type watched struct{ balancer.Builder }

func (w watched) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return w.Builder.Build(&watchedConn{cc, opts.Target.String()}, opts)
}

type watchedConn struct {
	balancer.ClientConn
	target string
}

func (w *watchedConn) UpdateState(s balancer.State) {
	pickers.Store(w.target, s.Picker)
	w.ClientConn.UpdateState(s)
}

// benchServers is the number of servers of each balancer.
const benchServers = 3

// roomKey is the context key under which the hook of a benchmark finds the room.
type roomKey struct{}

// benchKeys returns contexts for calls with different keys.
func benchKeys(ctx context.Context) (keys [64]context.Context) {
	for i := range keys {
		room := fmt.Sprint("room-", i)
		keys[i] = context.WithValue(routinggrpc.WithKey(ctx, room), roomKey{}, room)
	}
	return keys
}

// clients returns connections by the name of their benchmark. The servers for roost check keys, the servers for
// round_robin do not. All connections are open.
func clients(b *testing.B) map[string]*grpc.ClientConn {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	var apis, join []string
	var others []resolver.Address
	for i := range benchServers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: fmt.Sprint("n", i), Bind: "127.0.0.1:0", APIAddr: l.Addr().String(), Join: join, Network: cluster.Local, Log: quiet,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = agent.Close() })
		join = []string{agent.Addr()}
		api := httptest.NewServer(clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet})).Handler)
		b.Cleanup(func() { api.CloseClientConnections(); api.Close() })
		apis = append(apis, api.URL)
		check := routinggrpc.Check{Owns: agent.Arrived}
		listen(b, l, grpc.ChainUnaryInterceptor(check.Unary))

		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listen(b, other)
		others = append(others, resolver.Address{Addr: other.Addr().String()})
	}
	f, err := routing.Start(b.Context(), routing.Config{Agents: apis, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	opts := func(key routinggrpc.Key) []grpc.DialOption {
		opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: routinggrpc.FromClient(f), Key: key})
		if err != nil {
			b.Fatal(err)
		}
		return opts
	}
	servers := manual.NewBuilderWithScheme("servers")
	servers.InitialState(resolver.State{Addresses: others})
	all := map[string]*grpc.ClientConn{
		"roost": dial(b, "roost:///metadata", opts(nil)...),
		"roost_by_a_hook": dial(b, "roost:///hook", opts(func(ctx context.Context, _ string) (string, error) {
			return ctx.Value(roomKey{}).(string), nil
		})...),
		"round_robin": dial(b, "servers:///", grpc.WithResolvers(servers),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`)),
	}
	for name, conn := range all {
		client := grpc_testing.NewTestServiceClient(conn)
		for at := make(map[string]bool); len(at) < benchServers; {
			for _, ctx := range benchKeys(ctx) {
				resp, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.WaitForReady(true))
				if err != nil {
					b.Fatal(name, err)
				}
				at[resp.GetServerId()] = true
			}
		}
	}
	return all
}

func listen(b *testing.B, l net.Listener, opts ...grpc.ServerOption) {
	b.Helper()
	srv := grpc.NewServer(opts...)
	grpc_testing.RegisterTestServiceServer(srv, &greeter{id: l.Addr().String()})
	var ended sync.WaitGroup
	ended.Go(func() { _ = srv.Serve(l) })
	b.Cleanup(func() { srv.Stop(); ended.Wait() })
}

func dial(b *testing.B, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// BenchmarkPick compares picks of roost, with the table of a routing client, with picks of round_robin.
func BenchmarkPick(b *testing.B) {
	all := clients(b)
	keys := benchKeys(b.Context())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		found, _ := pickers.Load(all[name].CanonicalTarget())
		picker := found.(balancer.Picker)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				info := balancer.PickInfo{Ctx: keys[i%len(keys)], FullMethodName: grpc_testing.TestService_UnaryCall_FullMethodName}
				if _, err := picker.Pick(info); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall compares calls through roost and through round_robin over loopback, with one caller per CPU. The
// servers of round_robin do not check keys.
func BenchmarkCall(b *testing.B) {
	all := clients(b)
	keys := benchKeys(b.Context())
	for _, name := range []string{"roost", "round_robin"} {
		client := grpc_testing.NewTestServiceClient(all[name])
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := client.UnaryCall(keys[i%len(keys)], &grpc_testing.SimpleRequest{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
