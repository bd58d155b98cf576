package clusterhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/tablewire"
	"github.com/roost-cluster/roost/lease"
)

// inRoles runs a test with five nodes in a synctest bubble. Nodes a, b and c have the role sfu, d and e have another
// role. Each node has the scopes sfu and recorder, and h is the API of a.
func inRoles(t *testing.T, test func(t *testing.T, c *clustertest.Cluster, h *api)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Partitions, cfg.Labels = 64, map[string]string{"role": "sfu"}
			if cfg.ID > "c" {
				cfg.Labels["role"] = "gateway"
			}
		}})
		c.Start("a", "b", "c", "d", "e")
		c.WaitAgreed(5 * time.Second)
		for _, id := range c.IDs() {
			scopeOf(t, c.Agent(id), "sfu")
			scopeOf(t, c.Agent(id), "recorder")
		}
		time.Sleep(5 * time.Second) // until heartbeats carry the digests
		test(t, c, newAPI(c.Agent("a"), Options{Log: quiet}))
	})
}

// scopeOf makes a scope for a role, and names the scope after the role.
func scopeOf(t *testing.T, agent *cluster.Agent, role string) *cluster.Scope {
	t.Helper()
	scope, err := agent.Scope(role, func(m *cluster.Member) bool { return m.Has("role", role) })
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

func setRole(t *testing.T, agent *cluster.Agent, role string) {
	t.Helper()
	if err := agent.SetLabels(map[string]string{"role": role}); err != nil {
		t.Fatal(err)
	}
}

// With the parameter scope, each endpoint of each node returns the same as the scope. Without the parameter, it returns
// the same as the agent.
func TestScopeAnswers(t *testing.T) {
	inRoles(t, func(t *testing.T, c *clustertest.Cluster, _ *api) {
		owned := 0
		for _, id := range c.IDs() {
			agent := c.Agent(id)
			scope := agent.Scopes()[0]
			whole := serve(t, NewServer(Handler(agent, Options{Log: quiet}))).client(t)
			sfu := *whole
			sfu.Scope = "sfu"
			for i := range 50 {
				key := fmt.Sprint("room-", i)
				want, _ := scope.Place(key)
				got, err := sfu.Place(t.Context(), key)
				if err != nil || got.Owner.ID != want.ID || got.Owner.Labels["role"] != "sfu" || !got.Owner.InSync ||
					got.Version != scope.Snapshot().Version() || got.Digest != scope.Snapshot().Digest() || got.Stale {
					t.Fatalf("%s: %s is at %+v (%v), want %s", id, key, got, err, want.ID)
				}
				other, err := whole.Place(t.Context(), key)
				if want, _ := agent.Place(key); err != nil || other.Owner.ID != want.ID || other.Digest == got.Digest {
					t.Fatalf("%s: %s is at %+v (%v), want %s", id, key, other, err, want.ID)
				}
				ranked, err := sfu.Owners(t.Context(), key, 10)
				if err != nil || len(ranked.Owners) != 3 || ranked.Owners[0].ID != want.ID || !strings.HasPrefix(ranked.Why, string(want.ID)) {
					t.Fatalf("%s: owners of %s: %+v, %v", id, key, ranked, err)
				}
			}
			for range 2 { // the second response comes from the cache
				table, err := sfu.Partitions(t.Context())
				if err != nil || table.Digest != scope.Snapshot().Digest() || len(table.Counts) != 3 || table.Counts["d"]+table.Counts["e"] > 0 {
					t.Errorf("%s: partitions %+v, %v", id, table, err)
				}
				table, err = whole.Partitions(t.Context())
				if err != nil || table.Digest != agent.Snapshot().Digest() || len(table.Counts) != 5 {
					t.Errorf("%s: partitions %+v, %v", id, table, err)
				}
				got, err := sfu.Owned(t.Context())
				if err != nil || !slices.Equal(got.Partitions, scope.Owned()) {
					t.Errorf("%s owns %+v (%v), want %v", id, got, err, scope.Owned())
				}
				all, err := whole.Owned(t.Context())
				if err != nil || !slices.Equal(all.Partitions, agent.Owned()) || len(all.Partitions) == 0 {
					t.Errorf("%s owns %+v (%v), want %v", id, all, err, agent.Owned())
				}
			}
			owned += len(scope.Owned())
		}
		if owned != 64 {
			t.Errorf("the nodes own %d partitions of the scope", owned)
		}
	})
}

// If the node does not have the scope, or the scope has no candidate, the error says what to do.
func TestScopeProblems(t *testing.T) {
	inRoles(t, func(t *testing.T, c *clustertest.Cluster, h *api) {
		for _, target := range []string{"/v1/place?key=x", "/v1/owners?key=x", "/v1/partitions?", "/v1/owned?", "/v1/events?", "/v1/table?"} {
			expect(t, do(h, "GET", target+"&scope=web%20", ""), 404, `this node has no scope \"web \"; it has \"sfu\", \"recorder\"; make it with`)
			expect(t, do(h, "GET", target+"&scope=", ""), 400, "scope is empty")
			expect(t, do(h, "GET", target+"&scope=sfu&scope=sfu", ""), 400, "scope appears twice")
			expect(t, do(h, "GET", target+"&scope=%zz", ""), 400, "scope: invalid URL escape")
			expect(t, do(h, "GET", target+"&scope="+strings.Repeat("x", 4000), ""), 404, strings.Repeat("x", 80)+`\"; it has`)
			expect(t, do(h, "HEAD", target+"&s%63ope=sfu", ""), 200, "")
			expect(t, do(h, "HEAD", target+"&scope=web", ""), 404, "")
		}
		recorders := serve(t, NewServer(h)).client(t)
		recorders.Scope = "recorder"
		for range 2 {
			_, err := recorders.Place(t.Context(), "x")
			expectProblem(t, err, 503, CodeEmptyScope, "no member of the scope can own anything: none of the 5 live members matches")
			_, err = recorders.Owners(t.Context(), "x", 2)
			expectProblem(t, err, 503, CodeEmptyScope, "none of the 5 live members matches")
			if !errors.Is(err, cluster.ErrEmptyScope) || errors.Is(err, cluster.ErrNoMembers) {
				t.Errorf("%v is not ErrEmptyScope", err)
			}
			table, err := recorders.Partitions(t.Context())
			if err != nil || len(table.Nodes) > 0 || len(table.Owners) != 64 || table.Owners[17] != "" {
				t.Errorf("the table is %+v, %v", table, err)
			}
			setRole(t, c.Agent("a"), "recorder")
			c.WaitAgreed(10 * time.Second)
			if placed, err := recorders.Place(t.Context(), "x"); err != nil || placed.Owner.ID != "a" {
				t.Errorf("it is at %+v, %v", placed, err)
			}
			setRole(t, c.Agent("a"), "sfu")
			c.WaitAgreed(10 * time.Second)
		}
		recorders.Scope = "no one"
		_, err := recorders.Partitions(t.Context())
		expectProblem(t, err, 404, CodeNoScope, `no scope "no one"`)
		for i := range 10 {
			scopeOf(t, h.agent, fmt.Sprint("tenant-", i))
		}
		expect(t, do(h, "GET", "/v1/owned?scope=x", ""), 404,
			`it has \"sfu\", \"recorder\", \"tenant-0\", \"tenant-1\", \"tenant-2\", \"tenant-3\", \"tenant-4\", \"tenant-5\", and 4 more;`)
		expect(t, do(h, "GET", "/v1/place?key=x&scope=tenant-9", ""), 503, CodeEmptyScope)
		if err := h.agent.Close(); err != nil {
			t.Fatal(err)
		}
		expect(t, do(h, "GET", "/v1/place?key=x&scope=sfu", ""), 503, CodeClosed)
		expect(t, do(h, "GET", "/v1/table?scope=sfu", ""), 503, CodeClosed)
	})
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		expect(t, do(h, "GET", "/v1/owned?scope=x", ""), 404, `this node has no scope \"x\" and no other scope; make it with agent.Scope`)
	})
}

// The events of a scope are only about its members, not about rooms. A stream can resume with an id of the same scope,
// and ends when the agent ends.
func TestScopeEvents(t *testing.T) {
	inRoles(t, func(t *testing.T, c *clustertest.Cluster, _ *api) {
		agent := c.Agent("a")
		rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer rooms.Close()
		p := serve(t, NewServer(Handler(agent, Options{Log: quiet, Rooms: rooms})))
		open := func(target string, headers ...string) *listener {
			conn, err := p.Dial(t.Context())
			return listenTo(t, conn, err, target, headers...)
		}
		scope := agent.Scopes()[0]
		l := open("/v1/events?scope=sfu")
		first := l.batch()
		ids := fmt.Sprint(first.Joined)
		if ids != "[a b c]" || first.Digest != scope.Snapshot().Digest() || !slices.Equal(partitions(first.Acquired), scope.Owned()) {
			t.Errorf("the first batch has %s: %+v", ids, first)
		}
		whole := open("/v1/events")
		whole.batch()
		c.Crash("e")
		c.WaitAgreed(20 * time.Second)
		setRole(t, c.Agent("b"), "gateway")
		b := l.batch()
		if fmt.Sprint(b.Left) != "[b]" || len(b.Joined) > 0 || len(b.Moved) == 0 {
			t.Errorf("after b has another role: %+v", b)
		}
		for _, m := range b.Moved {
			if m.From != "b" || m.To != "a" && m.To != "c" {
				t.Errorf("moved %+v", m)
			}
		}
		setRole(t, c.Agent("d"), "sfu")
		joined := map[lease.NodeID]bool{}
		for len(joined) == 0 {
			for _, id := range l.batch().Joined {
				joined[id] = true
			}
		}
		if len(joined) != 1 || !joined["d"] {
			t.Errorf("after d has the role: %v joined", joined)
		}
		_ = l.conn.Close()

		if err := c.Agent("a").SetWeight(50); err != nil {
			t.Fatal(err)
		}
		c.WaitAgreed(20 * time.Second)
		// A resumed stream without a scope would start with a resync of rooms. A stream of a scope has none.
		l = open("/v1/events?scope=sfu", "Last-Event-ID: "+l.id)
		if b := l.batch(); b.Full || len(b.Moved) == 0 {
			t.Errorf("resumed: %+v", b)
		}
		if b := open("/v1/events?scope=sfu", "Last-Event-ID: "+whole.id).batch(); !b.Full {
			t.Errorf("resumed by the id of another ring: %+v", b)
		}
		tables := open("/v1/table?scope=sfu")
		if lines := tables.next(); lines == nil {
			t.Fatal("no table")
		}

		go func() { _ = agent.Close() }()
		b = l.batch()
		for len(b.Released) == 0 { // members may change first
			b = l.batch()
		}
		if rest := l.next(); rest != nil {
			t.Errorf("after the end: %q", rest)
		}
		for last := tables.next(); last != nil; last = tables.next() {
			if last[0] != "event: update" {
				t.Fatalf("after the end: %q", last)
			}
		}
	})
}

// A client with a scope requests the events of that scope, but the moves of all rooms.
func TestScopeClientStreams(t *testing.T) {
	inRoles(t, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		client.Scope = "sfu"
		for b, err := range client.Events(t.Context()) {
			if err != nil || fmt.Sprint(b.Joined) != "[a b c]" {
				t.Errorf("%+v, %v", b, err)
			}
			break
		}
		client.Scope = "web"
		for _, err := range client.Events(t.Context()) {
			expectProblem(t, err, 404, CodeNoScope, "web")
		}
		var target string
		client.HTTP = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			target = r.URL.String()
			return nil, errors.New("enough")
		})}
		for range client.MovedRooms(t.Context()) {
		}
		if strings.Contains(target, "scope") {
			t.Errorf("MovedRooms asks for %s", target)
		}
	})
}

// An endpoint that does not support scopes rejects the parameter, instead of answering about all members.
func TestScopeRejected(t *testing.T) {
	inRoles(t, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		for _, c := range calls() {
			if !strings.HasPrefix(c.path, "/v1/") || c.path == "/v1/openapi.json" {
				continue
			}
			target := strings.ReplaceAll(c.path, "{room}", "r") + "?scope=sfu"
			takes := slices.ContainsFunc(c.params, func(p parameter) bool { return p.name == "scope" })
			if takes && !slices.Contains([]string{"/v1/events", "/v1/table"}, c.path) {
				target += "&key=k&n=1"
			} else if takes {
				continue // these endpoints are streams
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, "http://localhost"+target, nil))
			if rejected := w.Code == http.StatusBadRequest && strings.Contains(w.Body.String(), "scope does not apply"); rejected == takes {
				t.Errorf("%s %s: %d %s", c.method, target, w.Code, w.Body)
			}
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The stream of tables of a scope contains its members and candidates. If a label changes, the stream sends a new
// table.
func TestScopeTables(t *testing.T) {
	inRoles(t, func(t *testing.T, c *clustertest.Cluster, h *api) {
		p := serve(t, NewServer(h))
		conn, err := p.Dial(t.Context())
		l := listenTo(t, conn, err, "/v1/table?scope=sfu")
		var state *tablewire.State
		follow := func() {
			t.Helper()
			lines := l.next()
			if len(lines) != 2 || lines[0] != "event: update" { // a comment, because nothing has changed for 15 s
				t.Fatalf("no update, but %q after %+v", lines, state)
			}
			var u tablewire.Update
			if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &u); err != nil {
				t.Fatal(err)
			}
			if state, err = u.Apply(state); err != nil {
				t.Fatal(err)
			}
		}
		has := func(want string) bool {
			var ids []lease.NodeID
			for _, m := range state.Members {
				ids = append(ids, m.ID)
			}
			var nodes []lease.NodeID
			for _, n := range state.Table.Nodes() {
				nodes = append(nodes, n.ID)
			}
			return fmt.Sprint(ids) == want && fmt.Sprint(nodes) == want
		}
		follow()
		s := h.agent.Scopes()[0].Snapshot()
		if !has("[a b c]") || state.Version != s.Version() || state.Table.Digest() != s.Digest() || state.Cluster != h.agent.Config().Cluster {
			t.Errorf("the first state: %+v", state)
		}
		setRole(t, c.Agent("e"), "sfu")
		for !has("[a b c e]") {
			follow()
		}
		setRole(t, c.Agent("a"), "gateway")
		for !has("[b c e]") {
			follow()
		}
		for _, id := range []string{"b", "c", "e"} {
			setRole(t, c.Agent(id), "gateway")
		}
		for !has("[]") {
			follow()
		}
	})
}
