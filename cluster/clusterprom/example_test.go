package clusterprom_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterprom"
)

// A program registers the collector with its own registry.
func ExampleNew() {
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-a", Bind: "127.0.0.1:0", Bootstrap: true, Network: cluster.Local,
		LeaseTTL: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer agent.Close()
	<-agent.Ready()

	registry := prometheus.NewRegistry()
	registry.MustRegister(clusterprom.New(agent, nil))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "roost_partitions") {
			fmt.Print(line)
		}
	}
	// Output:
	// roost_partitions 1024
	// roost_partitions_owned 1024
	// roost_partitions_unowned 0
}
