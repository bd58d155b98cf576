package clusterotel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterotel"
)

// BenchmarkResolve measures the cost of tracing for the cheapest call, a cached pin:
// without tracing, without a provider, below a span that is not sampled, and with all spans
// recorded and discarded.
func BenchmarkResolve(b *testing.B) {
	agent, err := cluster.Start(b.Context(), cluster.Config{
		ID: "solo", Bind: "127.0.0.1:0", Bootstrap: true, Network: cluster.Local, LeaseTTL: time.Minute, Log: quiet,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer agent.Close()
	<-agent.Ready()
	none := clusterotel.New(clusterotel.Options{})
	never := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	always := trace.NewTracerProvider()
	for _, side := range []struct {
		name     string
		tracing  *clusterotel.Tracing // nil: none
		provider *trace.TracerProvider
	}{
		{"untraced", nil, nil},
		{"no-provider", none, nil},
		{"not-sampled", clusterotel.New(clusterotel.Options{Provider: never}), never},
		{"recorded", clusterotel.New(clusterotel.Options{Provider: always}), always},
	} {
		b.Run(side.name, func(b *testing.B) {
			store := affinity.Store(&faulty{Store: affinity.NewMemory()})
			cfg := affinity.Config{Log: quiet}
			if side.tracing != nil {
				store, cfg.Tracer = side.tracing.Store(store), side.tracing
			}
			rooms, err := affinity.Start(agent, store, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer rooms.Close()
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			if side.provider != nil {
				var span interface{ IsRecording() bool }
				ctx, span = side.provider.Tracer("bench").Start(ctx, "join")
				if span.IsRecording() != (side.name == "recorded") {
					b.Fatal("unexpected decision of the sampler")
				}
			}
			for range 3 { // claimed, read, cached
				if _, err := rooms.Resolve(ctx, "r", affinity.Demand{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if a, err := rooms.Resolve(ctx, "r", affinity.Demand{}); err != nil || a.Source == affinity.Degraded {
					b.Fatal(a, err)
				}
			}
			if s := rooms.Stats(); s.Cached < s.Pinned+s.Hash {
				b.Errorf("the pin was not cached: %+v", s)
			}
		})
	}
}
