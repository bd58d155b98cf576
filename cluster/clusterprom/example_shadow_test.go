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
	"github.com/roost-cluster/roost/placement"
)

// Ring is the ring that decides today, such as ringpop, dskit or a hash library.
type Ring interface {
	Lookup(key string) (addr string) // the node of a key
	Addrs() []string                 // all nodes
}

// Shadow looks up keys in two rings, and counts the differences.
type Shadow struct {
	Old     Ring
	Agent   *cluster.Agent
	Share   func() placement.Partition // roost decides about keys in partitions below this one: 0 is none, 1,024 is all
	Lookups *prometheus.CounterVec     // counted by result
	Unknown prometheus.Gauge           // nodes that only one of the two rings has
}

// Lookup returns the node of a key.
func (s *Shadow) Lookup(key string) string {
	old := s.Old.Lookup(key)
	m, err := s.Agent.Place(key)
	switch {
	case err != nil:
		s.Lookups.WithLabelValues("none").Inc()
		return old
	case m.APIAddr == old:
		s.Lookups.WithLabelValues("same").Inc()
	default:
		s.Lookups.WithLabelValues("other").Inc()
	}
	if s.Agent.Partition(key) < s.Share() {
		return m.APIAddr
	}
	return old
}

// Compare compares the members of the two rings. Call it once a second.
func (s *Shadow) Compare() {
	one := make(map[string]int)
	for _, addr := range s.Old.Addrs() {
		one[addr]++
	}
	for _, m := range s.Agent.Members() {
		one[m.APIAddr]--
	}
	unknown := 0
	for _, n := range one {
		if n != 0 {
			unknown++
		}
	}
	s.Unknown.Set(float64(unknown))
}

// A program runs its current ring and roost side by side. docs/migrating.md explains how.
func Example_shadow() {
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", APIAddr: "10.0.0.1:443", Bootstrap: true, Network: cluster.Local,
		LeaseTTL: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer agent.Close()
	<-agent.Ready()

	share := placement.Partition(0)
	s := &Shadow{
		Old: halves{"10.0.0.1:443", "10.0.0.2:443"}, Agent: agent,
		Share:   func() placement.Partition { return share },
		Lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shadow_lookups_total"}, []string{"result"}),
		Unknown: prometheus.NewGauge(prometheus.GaugeOpts{Name: "shadow_unknown_nodes"}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Lookups, s.Unknown)

	s.Compare()
	fmt.Println("in shadow:", s.Lookup("a"), s.Lookup("bb"))
	share = 1024
	fmt.Println("switched: ", s.Lookup("a"), s.Lookup("bb"))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "shadow_") {
			fmt.Print(line)
		}
	}
	// Output:
	// in shadow: 10.0.0.2:443 10.0.0.1:443
	// switched:  10.0.0.1:443 10.0.0.1:443
	// shadow_lookups_total{result="other"} 2
	// shadow_lookups_total{result="same"} 2
	// shadow_unknown_nodes 1
}

// halves is a ring of two nodes that picks a node by the length of the key.
type halves [2]string

func (h halves) Lookup(key string) string { return h[len(key)%2] }
func (h halves) Addrs() []string          { return h[:] }
