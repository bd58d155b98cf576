package signalling_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster/affinity/signalling"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// start starts an agent for each id, and returns their resolvers, which share one Redis.
func start(t *testing.T, api string, ids ...string) []*affinity.Resolver {
	t.Helper()
	url := redistest.Start(t).URL()
	quiet := slog.New(slog.DiscardHandler)
	var agents []*cluster.Agent
	var all []*affinity.Resolver
	for _, id := range ids {
		cfg := cluster.Config{
			ID:         id,
			Bind:       "127.0.0.1:0",
			Bootstrap:  len(agents) == 0,
			Network:    cluster.Local,
			LeaseTTL:   time.Minute,
			Partitions: 64,
			Log:        quiet,
		}
		if api != "" {
			cfg.APIAddr = id + api
		}
		if len(agents) > 0 {
			cfg.Join = []string{agents[0].Addr()}
		}
		agent, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close() })
		redis, err := rueidisconn.Open(t.Context(), rueidisconn.Options{URL: redistest.Patient(url)})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(redis, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		rooms, err := affinity.Start(agent, store, affinity.Config{Budget: time.Minute, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rooms.Close() })
		agents, all = append(agents, agent), append(all, rooms)
	}
	redistest.Eventually(t, "all nodes to agree", func() error {
		for _, a := range agents {
			if s := a.Snapshot(); len(s.Members) != len(ids) || !s.Converged() {
				return fmt.Errorf("%s sees %d members", s.Self.ID, len(s.Members))
			}
		}
		return nil
	})
	return all
}

// server starts an HTTP server with all handlers of the package.
func server(t *testing.T, rooms *affinity.Resolver, keepAlive time.Duration) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /where/{room}", signalling.Where(rooms))
	mux.Handle("POST /whip/{room}", signalling.Redirect(rooms, "https"))
	mux.Handle("POST /report/{room}", signalling.Report(rooms))
	mux.Handle("GET /follow/{room}", signalling.Follow(rooms, keepAlive))
	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

type answer struct {
	status int
	header http.Header
}

// ask sends a request, and returns the response and the directive in its body.
func ask(t *testing.T, s *httptest.Server, method, target, body string) (answer, reconnect.Directive) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var d reconnect.Directive
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "application/json" {
		if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
			t.Fatal(err)
		}
	}
	return answer{resp.StatusCode, resp.Header}, d
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	rooms := start(t, ".example:443", "a", "b")
	s := server(t, rooms[0], 0)
	resp, home := ask(t, s, "GET", "/where/r", "")
	if resp.header.Get("Cache-Control") != "no-store" || home.Room != "r" || home.Addr != string(home.To)+".example:443" || home.Epoch == 0 {
		t.Errorf("where: %v %+v", resp, home)
	}
	resp, _ = ask(t, s, "POST", "/whip/r?token=a%2Fb", "v=0")
	at := resp.header.Get("Location")
	if resp.status != 307 || at != "https://"+home.Addr+"/whip/r?token=a%2Fb" || resp.header.Get("Cache-Control") != "no-store" {
		t.Errorf("whip: %d to %q", resp.status, at)
	}
	lost, _ := json.Marshal(home)
	for _, body := range []string{string(lost), "{}", ""} {
		if _, d := ask(t, s, "POST", "/report/r", body); d.To != home.To || d.Epoch != home.Epoch {
			t.Errorf("report of a live node with %q: %+v", body, d)
		}
	}
	to := lease.NodeID("a")
	if home.To == to {
		to = "b"
	}
	if _, err := rooms[0].Move(t.Context(), "r", to); err != nil {
		t.Fatal(err)
	}
	if _, d := ask(t, s, "POST", "/report/r", string(lost)); d.To != to || d.Epoch <= home.Epoch {
		t.Errorf("report of a former node: %+v", d)
	}
	for target, want := range map[string]int{
		"GET /where/a*b": 400, "POST /whip/a*b": 400, "GET /follow/a*b": 400, "POST /report/a*b": 400, "POST /report/none": 404,
	} {
		method, path, _ := strings.Cut(target, " ")
		if resp, _ := ask(t, s, method, path, ""); resp.status != want {
			t.Errorf("%s: %d, want %d", target, resp.status, want)
		}
	}
	for _, body := range []string{"no JSON", `{"to":7}`, `{"to":"` + strings.Repeat("x", 5000) + `"}`} {
		if resp, _ := ask(t, s, "POST", "/report/r", body); resp.status != 400 {
			t.Errorf("report %.20q: %d", body, resp.status)
		}
	}
}

// The handler serves the file from the repository without changes.
func TestJavaScript(t *testing.T) {
	w := httptest.NewRecorder()
	signalling.JavaScript().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/reconnect.mjs", nil))
	want, err := os.ReadFile("../reconnect/reconnect.mjs")
	if kind := w.Header().Get("Content-Type"); err != nil || kind != "text/javascript; charset=utf-8" || w.Body.String() != string(want) {
		t.Errorf("%q, %d bytes; want %d, %v", kind, w.Body.Len(), len(want), err)
	}
}

// If a node has no API address, or if the resolver is closed, the client is told to try again.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	rooms := start(t, "", "a")
	s := server(t, rooms[0], 0)
	for _, what := range []string{"no address", "closed"} {
		if what == "closed" {
			_ = rooms[0].Close()
		}
		for _, target := range []string{"GET /where/r", "POST /whip/r", "POST /report/r"} {
			method, path, _ := strings.Cut(target, " ")
			if resp, _ := ask(t, s, method, path, ""); resp.status != 503 || resp.header.Get("Retry-After") != "1" {
				t.Errorf("%s: %s: %d, Retry-After %q", what, target, resp.status, resp.header.Get("Retry-After"))
			}
		}
	}
}

// A client receives the room's node first, then each move. Comments keep the connection alive until the resolver is
// closed.
func TestFollow(t *testing.T) {
	t.Parallel()
	rooms := start(t, ".example:443", "a", "b")
	s := server(t, rooms[0], 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/follow/r", nil)
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", resp.Header)
	}
	lines, comments := bufio.NewScanner(resp.Body), 0
	next := func() (d reconnect.Directive) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &d); err != nil {
					t.Fatal(err)
				}
				return d
			}
			if lines.Text() == ": keep-alive" {
				comments++
			}
		}
		return d
	}
	home, err := rooms[1].Resolve(t.Context(), "r", affinity.Demand{})
	if err != nil {
		t.Fatal(err)
	}
	if d := next(); d.To != home.Node || d.Epoch != home.Epoch || d.Addr != home.Member.APIAddr {
		t.Errorf("first %+v, want %v", d, home)
	}
	to := lease.NodeID("a")
	if home.Node == to {
		to = "b"
	}
	moved, err := rooms[1].Move(t.Context(), "r", to)
	if err != nil {
		t.Fatal(err)
	}
	if d := next(); d.To != to || d.Epoch != moved.Epoch || d.Room != "r" {
		t.Errorf("then %+v, want %v", d, moved)
	}
	for end := time.AfterFunc(300*time.Millisecond, func() { _ = rooms[0].Close() }); ; end.Stop() {
		if d := next(); d.To == "" {
			break
		}
	}
	if lines.Err() != nil || comments == 0 {
		t.Errorf("the end: %v, after %d comments", lines.Err(), comments)
	}
}
