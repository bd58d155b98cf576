package httpproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/redistest"
)

// node is a server with an embedded agent. The proxy runs as middleware in front of the server's handler.
type node struct {
	*cluster.Agent
	url string
}

func middleware(t *testing.T, id string, minMembers int, join ...string) node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := cluster.Start(t.Context(), cluster.Config{
		ID:         id,
		Bind:       "127.0.0.1:0",
		APIAddr:    l.Addr().String(),
		Join:       join,
		MinMembers: minMembers,
		Network:    cluster.Local,
		LeaseTTL:   30 * time.Second,
		Partitions: 64,
		Log:        quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	place := func(key string) (string, bool, error) {
		if agent.Snapshot().Stale() {
			return "", false, errors.New("this node is isolated or fenced")
		}
		owner, err := agent.Place(key)
		if err != nil {
			return "", false, err
		}
		return owner.APIAddr, agent.IsOwner(key), nil
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: newProxy(t, place, func(c *httpproxy.Config) { c.Local = named(id) })}
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() { _ = srv.Close(); served.Wait(); _ = agent.Close() })
	return node{agent, "http://" + l.Addr().String()}
}

// Nodes drain in turns, so keys move, and the tables of the nodes differ for some hundred milliseconds. Servers that
// use the proxy as middleware still answer all requests.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	a := middleware(t, "a", 1)
	b := middleware(t, "b", 1, a.Addr())
	c := middleware(t, "c", 1, a.Addr())
	nodes := []node{a, b, c}
	agreed := func() {
		redistest.Until(t, "one table of three", func() bool {
			for _, n := range nodes {
				if s := n.Snapshot(); len(s.Members) != 3 || !s.Converged() {
					return false
				}
			}
			return true
		})
	}
	agreed()

	ctx, stop := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	var answered atomic.Int64
	var asking sync.WaitGroup
	defer func() { stop(); asking.Wait() }()
	for i := range 4 {
		asking.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				method := []string{http.MethodGet, http.MethodPost}[n/3%2]
				r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("%s/rooms/%d", nodes[n%3].url, n%97), strings.NewReader("body"))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if answered.Add(1); resp.StatusCode != http.StatusOK {
					t.Errorf("%s %s: %s", method, r.URL, resp.Status)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for round := range 6 {
		n := nodes[round%3]
		if err := n.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		agreed()
		if err := n.Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		agreed()
	}
	if n := answered.Load(); n < 10 {
		t.Errorf("%d requests", n)
	}
}

// An isolated node responds immediately, and does not send requests to itself, although its last table names this node
// as the owner.
func TestIsolatedMiddleware(t *testing.T) {
	t.Parallel()
	a := middleware(t, "a", 2)
	b := middleware(t, "b", 2, a.Addr())
	redistest.Until(t, "two members", func() bool { return len(a.Owned()) > 0 && len(b.Owned()) > 0 })
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "a is isolated", func() bool { return a.Snapshot().Phase == cluster.PhaseIsolated })
	for i := range 20 {
		status, body, _ := ask(t, "GET", fmt.Sprint(a.url, "/rooms/", i), "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "isolated") {
			t.Errorf("%d %s", status, body)
		}
	}
}
