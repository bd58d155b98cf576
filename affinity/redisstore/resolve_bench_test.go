package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// bench is a node on a real server, and a bare client.
type bench struct {
	server *redistest.Server
	agent  *cluster.Agent
	bare   rueidis.Client
}

func newBench(b *testing.B) *bench {
	b.Helper()
	server := redistest.Start(b)
	agent, err := cluster.Start(b.Context(), cluster.Config{
		ID: "bench", Bind: "127.0.0.1:0", Network: cluster.Local, Log: slog.New(slog.DiscardHandler),
		LeaseTTL: time.Minute, // a busy machine must not fence the agent, which forgets its pins then
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = agent.Close() })
	<-agent.Ready()
	opt, _, err := Options{URL: server.URL()}.client()
	if err != nil {
		b.Fatal(err)
	}
	bare, err := rueidis.NewClient(opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(bare.Close)
	return &bench{server, agent, bare}
}

func (n *bench) resolver(b *testing.B, store affinity.Store) *affinity.Resolver {
	b.Helper()
	// A slow join is measured, not degraded.
	cfg := affinity.Config{Budget: time.Minute, Log: slog.New(slog.DiscardHandler)}
	rooms, err := affinity.Start(n.agent, store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rooms.Close() })
	return rooms
}

// unsure is a store with answers that are never fresh.
type unsure struct{ *Store }

func (s unsure) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	results := s.Store.Swap(ctx, ops...)
	for i := range results {
		results[i].Fresh = 0
	}
	return results
}

// BenchmarkResolve compares joins with bare commands on the same server, by one caller
// and by 64.
func BenchmarkResolve(b *testing.B) {
	n := newBench(b)
	rooms := n.resolver(b, open(b, Options{URL: n.server.URL()}))
	asking := n.resolver(b, unsure{open(b, Options{URL: n.server.URL()})})
	one := newScript("return 1")
	one.run(b.Context(), n.bare, call{[]string{"k"}, nil})
	n.server.Do("SET", "k", "v")
	pinned := make([]string, 1000)
	for i := range pinned {
		pinned[i] = fmt.Sprint("pinned-", i)
		if err := resolve(rooms, pinned[i], 0); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := rooms.Host(b.Context(), "hosted", affinity.Demand{Size: 2}); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"bare GET", func() error {
			return n.bare.Do(context.Background(), n.bare.B().Get().Key("k").Build()).Error()
		}},
		{"bare EVALSHA", func() error {
			return one.run(context.Background(), n.bare, call{[]string{"k"}, nil})[0].Error()
		}},
		{"cached", func() error { return resolve(rooms, pinned[0], affinity.Cached) }},
		{"pinned", func() error {
			return resolve(asking, pinned[next.Add(1)%int64(len(pinned))], affinity.Pinned)
		}},
		{"first claim", func() error { return resolve(rooms, fmt.Sprint("new-", next.Add(1)), affinity.Hash) }},
		{"host of a hosted room", func() error {
			_, err := rooms.Host(context.Background(), "hosted", affinity.Demand{Size: 2})
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/64 callers", func(b *testing.B) {
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// resolve fails unless the source is want; 0 is any.
func resolve(rooms *affinity.Resolver, room string, want affinity.Source) error {
	a, err := rooms.Resolve(context.Background(), room, affinity.Demand{Size: 2})
	if err == nil && want != 0 && a.Source != want {
		err = fmt.Errorf("%s is %s, not %s", room, a.Source, want)
	}
	return err
}

// BenchmarkRehome re-homes the rooms of a dead node, by the one node that owns all
// partitions then.
func BenchmarkRehome(b *testing.B) {
	n := newBench(b)
	store := open(b, Options{URL: n.server.URL()})
	// An earlier incarnation of this node is dead for certain: no lease has to expire.
	dead := lease.Incarnation{Node: "bench", Number: 1}
	ops := make([]affinity.Op, 5000)
	for i := range ops {
		room := fmt.Sprint("room-", i)
		ops[i] = affinity.Op{
			Partition: placement.Of(room, placement.DefaultPartitions), Room: room,
			Set: affinity.Pin{Incarnation: dead, Size: 2}, TTL: time.Hour,
		}
	}
	for b.Loop() {
		b.StopTimer()
		n.server.Do("FLUSHALL")
		for _, r := range store.Swap(b.Context(), ops...) {
			if r.Err != nil || !r.Done {
				b.Fatal(r)
			}
		}
		other := open(b, Options{URL: n.server.URL()})
		tick := time.NewTicker(time.Millisecond)
		b.StartTimer()
		rooms, err := affinity.Start(n.agent, other, affinity.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); rooms.Stats().Rehomed < uint64(len(ops)); <-tick.C {
			if time.Now().After(deadline) {
				b.Fatalf("%d rooms were re-homed", rooms.Stats().Rehomed)
			}
		}
		b.StopTimer()
		tick.Stop()
		_ = rooms.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ops)), "ns/room")
}
