package clusterhttp

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/pipenet"
	"github.com/roost-cluster/roost/lease"
)

func TestMain(m *testing.M) {
	clients := os.Getenv(crowdServer)
	if clients == "" {
		leak.Main(m)
		return
	}
	n, err := strconv.Atoi(clients)
	switch {
	case err != nil:
	case n == 0:
		err = serveEmbedded()
	default:
		err = serveCrowd(n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// trio returns a cluster of the nodes a, b and c that agree. Call it in a synctest bubble.
func trio(t *testing.T) *clustertest.Cluster {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
		cfg.Partitions, cfg.APIAddr = 64, cfg.ID+".example:9000"
	}})
	c.Start("a", "b", "c")
	c.WaitAgreed(5 * time.Second)
	return c
}

// inTrio runs a test in a synctest bubble, with the cluster of trio and the API of a.
func inTrio(t *testing.T, opts Options, test func(t *testing.T, c *clustertest.Cluster, h *api)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		opts.Log = quiet
		test(t, c, newAPI(c.Agent("a"), opts))
	})
}

// soloConfig configures the only node of a cluster on real sockets.
func soloConfig(partitions int) cluster.Config {
	return cluster.Config{
		ID: "solo", Bind: "127.0.0.1:0", Bootstrap: true, Network: cluster.Local,
		LeaseTTL:   time.Minute, // a busy machine must not fence it
		Partitions: partitions, Log: quiet,
	}
}

// solo returns the only node of a cluster on real sockets when it is ready.
func solo(tb testing.TB, partitions int) *cluster.Agent {
	tb.Helper()
	a, err := cluster.Start(tb.Context(), soloConfig(partitions))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = a.Close() })
	<-a.Ready()
	return a
}

// waitFor polls until a condition is true, in real time.
func waitFor(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("timeout: %s", what)
		}
	}
}

// keyAt returns a key that a node owns.
func keyAt(tb testing.TB, agent *cluster.Agent, id lease.NodeID) string {
	tb.Helper()
	for i := range 1000 {
		key := fmt.Sprint("room-", i)
		if owner, err := agent.Place(key); err == nil && owner.ID == id {
			return key
		}
	}
	tb.Fatalf("%s owns nothing", id)
	return ""
}

// do sends one request to h. Headers have the form "Name: value".
func do(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8401"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// expect fails the test unless the response has this status and contains this text.
func expect(t *testing.T, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("got %d %.300s\nwant %d with %q", w.Code, w.Body, status, text)
	}
}

// pipes is an in-memory network for a server in a synctest bubble.
type pipes struct{ *pipenet.Net }

func serve(t *testing.T, srv *http.Server) pipes {
	t.Helper()
	return pipes{pipenet.Serve(t, srv)}
}

// listen opens a stream of events. Headers have the form "Name: value".
func (p pipes) listen(t *testing.T, headers ...string) *listener {
	t.Helper()
	conn, err := p.Dial(t.Context())
	return listen(t, conn, err, headers...)
}

// client returns a Client that connects over p.
func (p pipes) client(t *testing.T) *Client {
	t.Helper()
	return &Client{Base: "agent.test:8401", HTTP: &http.Client{Transport: p.Transport(t)}}
}
