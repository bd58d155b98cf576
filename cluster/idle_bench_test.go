//go:build unix

package cluster_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// BenchmarkIdle measures the cost of an agent that only keeps its lease, in clusters on real loopback sockets with the
// default timings. All agents run in this process, so each agent's cost is the total divided by their number.
func BenchmarkIdle(b *testing.B) {
	counts, settle, span := []int{10, 100}, 10*time.Second, 10*time.Second
	if testing.Short() {
		counts, settle, span = counts[:1], 0, 100*time.Millisecond
	}
	for _, n := range counts {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			agents := make([]*cluster.Agent, n)
			for i := range agents {
				cfg := cluster.Config{ID: fmt.Sprintf("n%03d", i), Bind: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}
				if i > 0 {
					cfg.Join = []string{agents[0].Addr()}
				}
				a, err := cluster.Start(b.Context(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				defer a.Close()
				agents[i] = a
			}
			for _, a := range agents {
				for len(a.Members()) < n || !a.Converged() {
					time.Sleep(10 * time.Millisecond)
				}
			}
			time.Sleep(settle) // memberlist is busy after a mass join
			for b.Loop() {
				begin, sent := cpu(), bytesSent(agents)
				time.Sleep(span)
				share := float64(cpu()-begin) / float64(span) / float64(n)
				b.ReportMetric(100*share, "%core/agent")
				b.ReportMetric(float64(bytesSent(agents)-sent)/span.Seconds()/float64(n)/1e3, "kB/s/agent")
			}
			var mem runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&mem)
			b.ReportMetric(float64(mem.HeapAlloc)/float64(n)/(1<<10), "KiB-heap/agent")
			b.ReportMetric(float64(runtime.NumGoroutine())/float64(n), "goroutines/agent")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func bytesSent(agents []*cluster.Agent) (sum uint64) {
	for _, a := range agents {
		sum += a.Snapshot().Stats.BytesSent
	}
	return sum
}
