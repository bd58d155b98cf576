package clusterotel_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterotel"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/pipenet"
	"github.com/roost-cluster/roost/lease"
)

func TestMain(m *testing.M) { leak.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// faulty is a store that fails if the test wants that. Like the errors of redisstore, its errors name the room.
type faulty struct {
	pinstore.Store
	refuses, hangs atomic.Bool
}

func (f *faulty) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	var err error
	switch {
	case f.refuses.Load():
		err = syscall.ECONNREFUSED
	case f.hangs.Load():
		<-ctx.Done()
		err = ctx.Err()
	default:
		results := f.Store.Swap(ctx, ops...)
		for i := range results {
			results[i].Fresh = time.Minute
		}
		return results
	}
	results := make([]pinstore.Result, len(ops))
	for i, op := range ops {
		results[i].Err = fmt.Errorf("%w: redis: room %q: %w", pinstore.ErrStore, op.Room, err)
	}
	return results
}

// Notify reports nothing. The memory store would report a caller's own changes, too, so the caller would read again at
// an unpredictable moment.
func (f *faulty) Notify(func(string)) (stop func()) { return func() {} }

// roomCluster is a traced cluster of a, b and c, with rooms on each node.
type roomCluster struct {
	*clustertest.Cluster
	store    faulty
	spans    *tracetest.InMemoryExporter
	provider *trace.TracerProvider
	tracing  *clusterotel.Tracing
	rooms    map[string]*affinity.Resolver
}

// newRoomCluster starts a roomCluster in a synctest bubble.
func newRoomCluster(t *testing.T, opts clusterotel.Options) *roomCluster {
	t.Helper()
	h := &roomCluster{
		Cluster: clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 64 }}),
		store:   faulty{Store: pinstore.NewMemory()}, spans: tracetest.NewInMemoryExporter(),
		rooms: make(map[string]*affinity.Resolver),
	}
	h.provider = trace.NewTracerProvider(trace.WithSyncer(h.spans))
	opts.Provider = h.provider
	h.tracing = clusterotel.New(opts)
	h.Start("a", "b", "c")
	h.WaitAgreed(5 * time.Second)
	for _, id := range h.IDs() {
		r, err := affinity.Start(h.Agent(id), h.tracing.Store(&h.store), affinity.Config{Log: quiet, PinTTL: time.Minute, Tracer: h.tracing})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		h.rooms[id] = r
	}
	time.Sleep(10 * time.Second) // until nodes have reported loads, and resolvers trust the store
	return h
}

const token = "the-secret-token"

// client returns a client of a node. Client and server are traced.
func (h *roomCluster) client(t *testing.T, id string) *clusterhttp.Client {
	t.Helper()
	opts := []otelhttp.Option{
		otelhttp.WithTracerProvider(h.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(clusterotel.Brief),
	}
	api := clusterhttp.Handler(h.Agent(id), clusterhttp.Options{Rooms: h.rooms[id], Log: quiet, Token: token})
	srv := clusterhttp.NewServer(otelhttp.NewHandler(h.tracing.Handler(api), "roost", opts...))
	transport := pipenet.Serve(t, srv).Transport(t)
	return &clusterhttp.Client{
		Base: "agent.test:8401", Token: token,
		HTTP: &http.Client{Transport: otelhttp.NewTransport(h.tracing.Transport(transport), opts...)},
	}
}

// tree returns the trace as text and resets it. Each span has a line, indented below its parent, with the error if the
// span failed, and with the events of the span.
func (h *roomCluster) tree() string {
	spans := h.spans.GetSpans()
	h.spans.Reset()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	known := make(map[string]bool)
	for _, s := range spans {
		known[s.SpanContext.SpanID().String()] = true
	}
	var b strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, s := range spans {
			above := s.Parent.SpanID().String()
			if !known[above] {
				above = ""
			}
			if above != parent {
				continue
			}
			fmt.Fprint(&b, indent, s.Name)
			if s.Status.Code == codes.Error {
				fmt.Fprintf(&b, " error=%q", s.Status.Description)
			}
			for _, e := range s.Events {
				fmt.Fprintf(&b, " event=%q", e.Name)
			}
			fmt.Fprintln(&b)
			write(s.SpanContext.SpanID().String(), indent+"  ")
		}
	}
	write("", "")
	return b.String()
}

// text returns everything that the spans contain as text.
func text(spans tracetest.SpanStubs) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintln(&b, s.Name, s.Status.Description, s.SpanKind)
		all := slices.Clone(s.Attributes)
		for _, e := range s.Events {
			fmt.Fprintln(&b, e.Name)
			all = append(all, e.Attributes...)
		}
		for _, kv := range all {
			fmt.Fprintln(&b, kv.Key, kv.Value.String())
		}
	}
	return b.String()
}

// attributes returns the attributes of the only span with this kind and name.
func attributes(t *testing.T, spans tracetest.SpanStubs, kind oteltrace.SpanKind, name string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	n := 0
	for _, s := range spans {
		if s.Name == name && s.SpanKind == kind {
			n++
			for _, kv := range s.Attributes {
				found[string(kv.Key)] = kv.Value.String()
			}
		}
	}
	if n != 1 {
		t.Errorf("%d spans of the kind %v are called %q", n, kind, name)
	}
	return found
}

// roomOn returns a room in a partition that a node owns.
func (h *roomCluster) roomOn(t *testing.T, id lease.NodeID) string {
	t.Helper()
	for i := range 1000 {
		room := fmt.Sprintf("jane-doe-%d", i)
		if owner, err := h.Agent("a").Place(room); err == nil && owner.ID == id {
			return room
		}
	}
	t.Fatal("no room is on", id)
	return ""
}
