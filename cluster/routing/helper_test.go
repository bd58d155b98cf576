package routing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/pipenet"
	"github.com/roost-cluster/roost/internal/tablewire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestMain(m *testing.M) { leak.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

const partitions = 64

// web is a simulated network between routing clients and the HTTP APIs of agents. The host name of an API is the id of
// its node. Use web only in a bubble.
type web struct {
	t       *testing.T
	c       *clustertest.Cluster
	mu      sync.Mutex
	sees    map[string]*pipenet.Net
	servers map[string]*http.Server
	held    map[string]chan struct{} // hosts whose data is held back
}

// inWeb runs a test in a bubble with three agents that agree on the table.
func inWeb(t *testing.T, test func(t *testing.T, w *web), changes ...func(*cluster.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &web{t: t, sees: make(map[string]*pipenet.Net), servers: make(map[string]*http.Server), held: make(map[string]chan struct{})}
		w.c = clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Partitions, cfg.APIAddr = partitions, cfg.ID+".example:9000"
			for _, change := range changes {
				change(cfg)
			}
		}})
		w.c.Start("a", "b", "c")
		w.c.WaitAgreed(5 * time.Second)
		for _, id := range w.c.IDs() {
			w.serve(id, clusterServer(w.c.Agent(id)))
		}
		test(t, w)
	})
}

// serve runs a server under a host name, and replaces the previous server of that host.
func (w *web) serve(host string, srv *http.Server) {
	served := pipenet.Serve(w.t, srv)
	w.mu.Lock()
	defer w.mu.Unlock()
	if former := w.servers[host]; former != nil {
		_ = former.Close()
	}
	w.sees[host], w.servers[host] = served, srv
}

// answer serves a handler under a host name.
func (w *web) answer(host string, h http.HandlerFunc) { w.serve(host, &http.Server{Handler: h}) }

// hold holds back all data from a host until release is called, as if the host's network were cut.
func (w *web) hold(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[host] = make(chan struct{})
}

func (w *web) release(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.held[host])
	delete(w.held, host)
}

func (w *web) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	w.mu.Lock()
	to, held := w.sees[host], w.held[host]
	w.mu.Unlock()
	switch {
	case held != nil:
		<-ctx.Done()
		return nil, ctx.Err()
	case to == nil:
		return nil, fmt.Errorf("connect %s: connection refused", addr)
	}
	conn, err := to.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &line{Conn: conn, w: w, host: host, closed: make(chan struct{})}, nil
}

// line is a connection whose data a test can hold back.
type line struct {
	net.Conn
	w      *web
	host   string
	once   sync.Once
	closed chan struct{}
}

func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.w.mu.Lock()
	held := l.w.held[l.host]
	l.w.mu.Unlock()
	if held != nil && err == nil {
		select {
		case <-held:
		case <-l.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// follow starts a routing client that knows the agents on these hosts.
func (w *web) follow(hosts ...string) *routing.Client {
	w.t.Helper()
	return w.followAs(routing.Config{Log: quiet}, hosts...)
}

func (w *web) followAs(cfg routing.Config, hosts ...string) *routing.Client {
	w.t.Helper()
	for _, h := range hosts {
		cfg.Agents = append(cfg.Agents, h+":8401")
	}
	transport := &http.Transport{DialContext: w.dial}
	cfg.HTTP = &http.Client{Transport: transport}
	f, err := routing.Start(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		for host := range w.held {
			w.release(host)
		}
		_ = f.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// ready waits for the first table.
func (w *web) ready(f *routing.Client) {
	w.t.Helper()
	select {
	case <-f.Ready():
	case <-time.After(10 * time.Second):
		w.t.Fatalf("not ready: %+v", f.Status())
	}
}

// await waits for a condition.
func (w *web) await(what string, most time.Duration, condition func() bool) {
	w.t.Helper()
	begin := time.Now()
	for !condition() {
		if time.Since(begin) > most {
			w.t.Fatalf("not within %v: %s", most, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// differ returns how the data of a routing client differs from the data of an agent, or "".
func differ(f *routing.Client, a *cluster.Agent) string { return differFrom(f, a.Snapshot()) }

// differFrom is like differ, but takes a snapshot of an agent or of a scope.
func differFrom(f *routing.Client, s *cluster.Snapshot) string {
	if f.Table().Digest() != s.Digest() || len(f.Members()) != len(s.Members) {
		return fmt.Sprintf("table %s of %d members, want %s of %d", f.Table().Digest(), len(f.Members()), s.Digest(), len(s.Members))
	}
	for i, m := range s.Members {
		got := f.Members()[i]
		want := routing.Member{Profile: m.Profile, State: m.State}
		if fmt.Sprint(*got) != fmt.Sprint(want) {
			return fmt.Sprintf("member %+v, want %+v", *got, want)
		}
	}
	for i := range 500 {
		key := fmt.Sprint("room-", i)
		got, err := f.Place(key)
		want, wantErr := s.Place(key)
		if (err == nil) != (wantErr == nil) || err == nil && (got.ID != want.ID || got.APIAddr != want.APIAddr) {
			return fmt.Sprintf("%s is at %v (%v), want %v (%v)", key, got, err, want, wantErr)
		}
		owners := f.Owners(key, 3)
		if len(owners) != len(s.Owners(key, 3)) || len(owners) > 0 && owners[len(owners)-1].ID != s.Owners(key, 3)[len(owners)-1].ID {
			return "other members follow the owner of " + key
		}
		for what, ids := range map[string][2]string{
			"subset": {idsOf(f.Subset(key, 2)), idsOf(s.Subset(key, 2))},
			"near":   {idsOf(f.OwnersNear(key, 2, "z1")), idsOf(s.OwnersNear(key, 2, "z1"))},
		} {
			if ids[0] != ids[1] {
				return fmt.Sprintf("%s of %s: %s, want %s", what, key, ids[0], ids[1])
			}
		}
	}
	return ""
}

// sends returns a handler that sends the lines as a stream, and then nothing more.
func sends(lines string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(rw, lines)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}
}

// event returns an update in the format in which agents send it.
func event(t *testing.T, before, after *tablewire.State) string {
	t.Helper()
	b, err := json.Marshal(tablewire.Diff(before, after))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("event: update\ndata: %s\n\n", b)
}

// tableOf returns a table of nodes with equal weights.
func tableOf(t *testing.T, partitions int, ids ...lease.NodeID) *placement.Table {
	t.Helper()
	in := placement.Input{Partitions: partitions, Strategy: placement.Rendezvous()}
	for _, id := range ids {
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
	}
	table, err := placement.Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func clusterServer(a *cluster.Agent) *http.Server {
	return clusterhttp.NewServer(clusterhttp.Handler(a, clusterhttp.Options{Log: quiet}))
}

// slowly is a function for RunOwned that takes half a second to stop.
func slowly(ctx context.Context, _ placement.Partition) {
	<-ctx.Done()
	time.Sleep(500 * time.Millisecond)
}

// idsOf returns the ids of members of a routing client or an agent.
func idsOf[M routing.Member | cluster.Member](members []*M) string {
	var ids strings.Builder
	for _, m := range members {
		switch m := any(m).(type) {
		case *routing.Member:
			ids.WriteString(string(m.ID) + " ")
		case *cluster.Member:
			ids.WriteString(string(m.ID) + " ")
		}
	}
	return ids.String()
}

func must(id lease.NodeID, _ bool) lease.NodeID { return id }
