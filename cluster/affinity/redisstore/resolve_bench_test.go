//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// bench is a node with a real Redis server, and a bare client of the server.
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
		LeaseTTL: time.Minute, // a busy machine must not fence the agent, because a fenced agent forgets its pins
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = agent.Close() })
	<-agent.Ready()
	return &bench{server, agent, bareClient(b, server)}
}

// bareClient returns a client with the same settings as the client in rueidisconn.
func bareClient(b *testing.B, server *redistest.Server) rueidis.Client {
	b.Helper()
	opt, err := rueidis.ParseURL(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	opt.DisableCache, opt.DisableRetry, opt.AlwaysPipelining = true, true, true
	opt.PipelineMultiplex, opt.BlockingPipeline = -1, -1
	opt.ReadBufferEachConn, opt.WriteBufferEachConn = 32<<10, 32<<10
	client, err := rueidis.NewClient(opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	return client
}

func (n *bench) resolver(b *testing.B, store pinstore.Store) *affinity.Resolver {
	b.Helper()
	// With the long budget, a slow join is measured instead of becoming degraded.
	cfg := affinity.Config{Budget: time.Minute, Log: slog.New(slog.DiscardHandler)}
	rooms, err := affinity.Start(n.agent, store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rooms.Close() })
	return rooms
}

// unsure is a store whose answers are never fresh.
type unsure struct{ *Store }

func (s unsure) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	results := s.Store.Swap(ctx, ops...)
	for i := range results {
		results[i].Fresh = 0
	}
	return results
}

// BenchmarkResolve compares joins with a bare command on the same server, by one caller and by 64 callers. Each
// repetition runs some bare commands, then some joins, and divides the two times. times-bare is the median of these
// ratios. Other processes on the machine slow both down, so they hardly affect the ratio. server-ns/op is the CPU time
// of the server, client-ns/op the CPU time of this process.
func BenchmarkResolve(b *testing.B) {
	n := newBench(b)
	rooms := n.resolver(b, open(b, redisAt{URL: n.server.URL()}))
	asking := n.resolver(b, unsure{open(b, redisAt{URL: n.server.URL()})})
	others := n.resolver(b, goRedis(b, redis.NewClient(&redis.Options{Addr: n.server.Addr(), MaxRetries: -1}), ""))
	one := newScript("return 1")
	n.server.Do("SCRIPT", "LOAD", one.source)
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
	bare := func() error {
		return n.bare.Do(context.Background(), n.bare.B().Evalsha().Sha1(one.hash).Numkeys(1).Key("k").Build()).Error()
	}
	var next atomic.Int64
	for _, c := range []struct {
		name string
		each int // calls in each repetition
		call func() error
	}{
		{"bare EVALSHA", 4000, bare}, // the ratio is 1, except for noise
		{"bare GET", 4000, func() error {
			return n.bare.Do(context.Background(), n.bare.B().Get().Key("k").Build()).Error()
		}},
		{"cached", 100_000, func() error { return resolve(rooms, pinned[0], affinity.Cached) }},
		{"pinned", 4000, func() error {
			return resolve(asking, pinned[next.Add(1)%int64(len(pinned))], affinity.Pinned)
		}},
		{"first claim", 4000, func() error { return resolve(rooms, fmt.Sprint("new-", next.Add(1)), affinity.Hash) }},
		{"first claim over go-redis", 4000, func() error { return resolve(others, fmt.Sprint("new-", next.Add(1)), affinity.Hash) }},
		{"host of a hosted room", 100_000, func() error {
			_, err := rooms.Host(context.Background(), "hosted", affinity.Demand{Size: 2})
			return err
		}},
	} {
		for _, callers := range []int{1, 64} {
			// 64 callers pipeline well, so they make many calls in a repetition. A single caller makes fewer.
			bares, calls := 4000, c.each
			if callers == 1 {
				bares, calls = bares/64, calls/64
			}
			b.Run(fmt.Sprintf("%s by %d", c.name, callers), func(b *testing.B) {
				var took, ratios, server, client []float64
				for b.Loop() {
					base := slice(b, bares, callers, bare)
					cpu, own := n.serverTime(b), ownTime(b)
					per := slice(b, calls, callers, c.call)
					client = append(client, (ownTime(b)-own)/float64(calls))
					server = append(server, (n.serverTime(b)-cpu)/float64(calls))
					took, ratios = append(took, per), append(ratios, per/base)
				}
				b.ReportMetric(median(took), "ns/op")
				b.ReportMetric(median(ratios), "times-bare")
				b.ReportMetric(median(server), "server-ns/op")
				b.ReportMetric(median(client), "client-ns/op")
			})
		}
	}
}

// slice divides the calls among the callers, and returns the nanoseconds for each call.
func slice(b *testing.B, calls, callers int, call func() error) float64 {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(calls))
	var wait sync.WaitGroup
	began := time.Now()
	for range callers {
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return float64(time.Since(began).Nanoseconds()) / float64(calls)
}

// serverTime returns the CPU time in nanoseconds that the server has used for commands.
func (n *bench) serverTime(b *testing.B) (sum float64) {
	b.Helper()
	for line := range strings.Lines(n.server.Do("INFO", "cpu")) {
		if name, text, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.HasSuffix(name, "_main_thread") {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += seconds * 1e9
		}
	}
	return sum
}

// ownTime returns the CPU time in nanoseconds that this process has used.
func ownTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// resolve fails unless the source of the answer is want. If want is 0, resolve accepts any source.
func resolve(rooms *affinity.Resolver, room string, want affinity.Source) error {
	a, err := rooms.Resolve(context.Background(), room, affinity.Demand{Size: 2})
	if err == nil && want != 0 && a.Source != want {
		err = fmt.Errorf("%s is %s, not %s", room, a.Source, want)
	}
	return err
}

// BenchmarkFailover fails over the rooms of a dead node. The only live node owns all partitions and does all the work.
func BenchmarkFailover(b *testing.B) {
	n := newBench(b)
	store := open(b, redisAt{URL: n.server.URL()})
	// An earlier incarnation of this node is certainly dead, so no lease has to expire.
	dead := lease.Incarnation{Node: "bench", Number: 1}
	ops := make([]pinstore.Op, 5000)
	for i := range ops {
		room := fmt.Sprint("room-", i)
		ops[i] = pinstore.Op{
			Partition: placement.Of(room, placement.DefaultPartitions), Room: room,
			Set: pinstore.Pin{Incarnation: dead, Size: 2}, TTL: time.Hour,
		}
	}
	var server float64
	for b.Loop() {
		b.StopTimer()
		n.server.Do("FLUSHALL")
		for _, r := range store.Swap(b.Context(), ops...) {
			if r.Err != nil || !r.Done {
				b.Fatal(r)
			}
		}
		other := open(b, redisAt{URL: n.server.URL()})
		tick := time.NewTicker(time.Millisecond)
		cpu := n.serverTime(b)
		b.StartTimer()
		rooms, err := affinity.Start(n.agent, other, affinity.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); rooms.Stats().FailedOver < uint64(len(ops)); <-tick.C {
			if time.Now().After(deadline) {
				b.Fatalf("%d rooms were failed over", rooms.Stats().FailedOver)
			}
		}
		b.StopTimer()
		tick.Stop()
		server += n.serverTime(b) - cpu
		_ = rooms.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ops)), "ns/room")
	b.ReportMetric(server/float64(b.N)/float64(len(ops)), "server-ns/room")
}
