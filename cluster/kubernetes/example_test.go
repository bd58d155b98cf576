package kubernetes_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/kubernetes"
)

// This is the program in the pods of deploy/kubernetes/embedded.yaml.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	text, err := os.ReadFile("/etc/roost/gossip.key")
	if err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}

	// Serve first, because a pod that waits for Kubernetes or for a seed must not fail its startup probe.
	var routes atomic.Pointer[http.ServeMux]
	server := clusterhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch mux := routes.Load(); {
		case mux != nil:
			mux.ServeHTTP(w, r)
		case r.URL.Path != "/healthz":
			http.Error(w, "joining", http.StatusServiceUnavailable)
		}
	}))
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- server.Serve(listener) }()

	o := kubernetes.Options{Service: "app", Pod: os.Getenv("POD_NAME"), Labels: []string{"disk"}}
	cfg, err := kubernetes.Configure(ctx, cluster.Config{Key: key, MinMembers: 2}, o)
	if err != nil {
		return err
	}
	agent, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}

	api, mux := clusterhttp.Handler(agent, clusterhttp.Options{}), http.NewServeMux()
	mux.Handle("GET /healthz", api) // the other paths of the API need a token
	mux.Handle("GET /readyz", api)
	mux.HandleFunc("/", serve)
	routes.Store(mux)
	go func() { failed <- kubernetes.ReportReady(context.WithoutCancel(ctx), agent, o) }()
	go func() { failed <- kubernetes.ReportDeletionCost(context.WithoutCancel(ctx), agent, o) }() // the cost is the load that agent.SetLoad has set
	select {
	case err = <-failed: // none of them ends if peers or the API server do not answer
	case <-ctx.Done():
	}

	ending, cancel := context.WithTimeout(context.Background(), 50*time.Second) // terminationGracePeriodSeconds is 60
	defer cancel()
	drained := agent.Drain(ending)
	select {
	case <-time.After(5 * time.Second): // until Services send no more requests
	case <-ending.Done():
	}
	return errors.Join(err, drained, server.Shutdown(ending), agent.Leave(ending))
}

func serve(http.ResponseWriter, *http.Request) {}
