// Tutorial is a media server that distributes its rooms over several nodes. docs/quickstart.md explains the
// code step by step and shows how to run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterprom"
	"github.com/roost-cluster/roost/placement"
)

func main() {
	id := flag.String("id", "a", "this node's name")
	addr := flag.String("http", "127.0.0.1:9001", "address for clients")
	bind := flag.String("gossip", "127.0.0.1:7946", "address for gossip")
	seed := flag.String("join", "", "gossip address of a running node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := cluster.Config{ID: *id, APIAddr: *addr, Bind: *bind}
	if *seed != "" {
		cfg.Join = []string{*seed}
	}
	if err := run(ctx, cfg); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, cfg cluster.Config) error {
	agent, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	select {
	case <-agent.Ready():
	case <-ctx.Done():
		return agent.Close()
	}
	s := &sfu{agent: agent, rooms: make(map[placement.Partition]map[string]int)}
	server := &http.Server{Addr: cfg.APIAddr, Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- agent.RunOwned(context.Background(), s.serve) }() //nolint:gosec // ends with the agent
	go func() { ended <- server.ListenAndServe() }()
	select {
	case <-ctx.Done(): // SIGTERM: a deploy
	case err := <-ended: // the port is taken, or a later process has this node's id
		return errors.Join(err, agent.Err(), server.Close(), agent.Close())
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	drained := agent.Drain(ctx)    // this node owns nothing, and all others know
	served := server.Shutdown(ctx) // the server redirected clients until now
	left := agent.Leave(ctx)       // waits for the runs, then tells the others that this node is gone
	_, _ = <-ended, <-ended
	return errors.Join(drained, served, left)
}

// sfu is a media server that serves the rooms in the partitions that its node owns.
type sfu struct {
	agent *cluster.Agent

	mu    sync.Mutex
	rooms map[placement.Partition]map[string]int // participants; each owned partition has an entry
}

func (s *sfu) routes() http.Handler {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(clusterprom.New(s.agent, nil))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /join/{room}", s.join)
	mux.HandleFunc("POST /rooms/{room}", s.enter)
	return mux
}

// join redirects a client to the node of its room. Any node can handle the request.
func (s *sfu) join(w http.ResponseWriter, r *http.Request) {
	room := r.PathValue("room")
	owner, err := s.agent.Place(room)
	if err != nil { // no node can own anything, or this agent has stopped
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	http.Redirect(w, r, "http://"+owner.APIAddr+"/rooms/"+url.PathEscape(room), http.StatusTemporaryRedirect) //nolint:gosec // to a member
}

// enter accepts a client. enter runs on the node of the client's room.
func (s *sfu) enter(w http.ResponseWriter, r *http.Request) {
	room := r.PathValue("room")
	if !s.agent.Arrived(room) || !s.add(room) { // the room is moving: another redirect could go in circles
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the room is moving: join again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")       // a room may be called <script>
	_, _ = fmt.Fprintf(w, "%s is on %s\n", room, s.agent.Config().ID) //nolint:gosec // as plain text
}

// add counts a participant. add returns false if serve is not running for the partition of the room.
func (s *sfu) add(room string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rooms, open := s.rooms[s.agent.Partition(room)]
	if open {
		rooms[room]++
	}
	return open
}

// serve runs for each partition, from the time when this node acquires the partition until it releases it.
func (s *sfu) serve(ctx context.Context, p placement.Partition) {
	s.mu.Lock()
	s.rooms[p] = make(map[string]int)
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	defer s.mu.Unlock()
	for room, n := range s.rooms[p] {
		log.Printf("%s moves away: %d to join again", room, n) // notify them
	}
	delete(s.rooms, p)
}
