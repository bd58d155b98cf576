package affinity_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// mute is a store that does not notify. A Memory would notify its user even of the user's own claims.
type mute struct{ *pinstore.Memory }

func (mute) Notify(func(string)) (stop func()) { return func() {} }

// BenchmarkFirstClaim measures what the first join of a room costs the resolver if the store answers immediately.
func BenchmarkFirstClaim(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	agent, err := cluster.Start(b.Context(), cluster.Config{ID: "bench", Bind: "127.0.0.1:0", Network: cluster.Local, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = agent.Close() })
	<-agent.Ready()
	canEnd, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	for name, ctx := range map[string]context.Context{"ctx without end": context.Background(), "ctx that can end": canEnd} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s by %d", name, callers), func(b *testing.B) {
				rooms, err := affinity.Start(agent, mute{pinstore.NewMemory()}, affinity.Config{Log: quiet, MaxKnown: 10_000})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = rooms.Close() })
				var next atomic.Int64
				b.SetParallelism(callers)
				b.ReportAllocs()
				ask := func() {
					if _, err := rooms.Resolve(ctx, fmt.Sprint("r-", next.Add(1)), affinity.Demand{Size: 2}); err != nil {
						b.Error(err)
					}
				}
				if callers == 1 {
					for b.Loop() {
						ask()
					}
					return
				}
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						ask()
					}
				})
			})
		}
	}
}
