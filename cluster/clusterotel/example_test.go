package clusterotel_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterotel"
)

// A program with OpenTelemetry traces its rooms, its own API, and its calls to the API of other nodes.
func ExampleNew() {
	// Do this once per program, with an exporter of your choice.
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})

	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-a", Bind: "127.0.0.1:0", Bootstrap: true, Network: cluster.Local,
		LeaseTTL: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer agent.Close()
	<-agent.Ready()

	tracing := clusterotel.New(clusterotel.Options{})
	store := pinstore.NewMemory() // or redisstore.New
	rooms, err := affinity.Start(agent, tracing.Store(store), affinity.Config{
		Tracer: tracing,
		Log:    slog.New(slog.DiscardHandler),
		Budget: time.Minute, // a busy machine must not degrade it
	})
	if err != nil {
		panic(err)
	}
	defer rooms.Close()
	api := clusterhttp.Handler(agent, clusterhttp.Options{Rooms: rooms})
	srv := clusterhttp.NewServer(otelhttp.NewHandler(tracing.Handler(api), "roost", otelhttp.WithFilter(clusterotel.Brief)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go srv.Serve(listener)
	defer srv.Close()

	client := clusterhttp.Client{Base: listener.Addr().String(), HTTP: &http.Client{
		Transport: otelhttp.NewTransport(tracing.Transport(nil), otelhttp.WithFilter(clusterotel.Brief)),
	}}
	if _, err := client.ResolveRoom(context.Background(), "room-17", affinity.Demand{Size: 4}); err != nil {
		panic(err)
	}
	if err := srv.Shutdown(context.Background()); err != nil { // the span of the server ends with its handler
		panic(err)
	}
	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name)
	}
	// Unordered output:
	// internal roost.store.swap
	// internal roost.resolve
	// internal roost.store.swap
	// internal roost.host
	// server POST /v1/rooms/{room}/resolve
	// client POST /v1/rooms/{room}/resolve
}
