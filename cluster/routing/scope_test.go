package routing_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
)

// roles gives the nodes a and b the role sfu, and all other nodes the role gateway.
func roles(cfg *cluster.Config) {
	cfg.Labels = map[string]string{"role": "gateway"}
	if cfg.ID < "c" {
		cfg.Labels["role"] = "sfu"
	}
}

func scopeOf(t *testing.T, agent *cluster.Agent) *cluster.Scope {
	t.Helper()
	scope, err := agent.Scope("sfu & co", func(m *cluster.Member) bool { return m.Has("role", "sfu") })
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

// A routing client with a scope has the same table and members as the scope of its agent, while labels and members
// change.
func TestFollowsAScope(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		scopes := make(map[string]*cluster.Scope)
		for _, id := range w.c.IDs() {
			scopes[id] = scopeOf(t, w.c.Agent(id))
		}
		f := w.followAs(routing.Config{Log: quiet, Scope: "sfu & co"}, "a")
		w.ready(f)
		same := func(after, members string) {
			t.Helper()
			w.await(after, 20*time.Second, func() bool { return idsOf(scopes["a"].Members()) == members })
			w.c.WaitAgreed(20 * time.Second)
			w.await(after, 100*time.Millisecond, func() bool { return differFrom(f, scopes["a"].Snapshot()) == "" })
		}
		same("the start", "a b ")
		changes := f.Subscribe(t.Context())
		<-changes
		setRole(t, w.c.Agent("c"), "sfu")
		same("a new role", "a b c ")
		setRole(t, w.c.Agent("b"), "gateway")
		same("another role", "a c ")
		batch := <-changes
		if fmt.Sprint(batch.Joined, batch.Left) != "[c] [b]" || len(batch.Moved) == 0 || batch.Digest != scopes["a"].Snapshot().Digest() {
			t.Errorf("the changes are %+v", batch)
		}
		w.c.Crash("c")
		same("a crash", "a ")
		setRole(t, w.c.Agent("a"), "gateway")
		w.await("no member belongs to the scope", 10*time.Second, func() bool { return len(f.Members()) == 0 })
		_, err := f.Place("key")
		if !errors.Is(err, routing.ErrNoMembers) || !strings.Contains(err.Error(), `no member belongs to the scope "sfu & co"`) {
			t.Errorf("without members: %v", err)
		}
		setRole(t, w.c.Agent("a"), "sfu")
		same("a role again", "a ")
		w.c.Crash("a")
		w.await("its agent has ended", 5*time.Second, func() bool { return f.Status().Agent == "" })
		if m, err := f.Place("key"); err != nil || m.ID != "a" {
			t.Errorf("after the end of its agent: %v, %v", m, err)
		}
	}, roles)
}

// In a rolling deploy, no agent has the scope at first. The routing client asks until an agent has the scope, and its
// status names the agents that lack it. The client never uses the table of all members.
func TestFollowsAScopeThatIsNew(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		if _, err := w.c.Agent("b").Scope("web", func(*cluster.Member) bool { return true }); err != nil {
			t.Fatal(err)
		}
		f := w.followAs(routing.Config{Log: quiet, Scope: "sfu & co"}, "a", "b", "c")
		time.Sleep(30 * time.Second)
		_, err := f.Place("key")
		text := fmt.Sprint(f.Status().Err)
		if !errors.Is(err, routing.ErrNotReady) || f.Table() != nil ||
			!strings.Contains(text, `the agent at a:8401: this node has no scope "sfu & co" and no other scope`) ||
			!strings.Contains(text, `at b:8401: this node has no scope "sfu & co"; it has "web"`) {
			t.Errorf("no agent has the scope: %v, %s", err, text)
		}
		scope := scopeOf(t, w.c.Agent("b"))
		w.await("one agent has the scope", 20*time.Second, func() bool { return f.Status().Agent == "b:8401" && f.Status().Err == nil })
		if d := differFrom(f, scope.Snapshot()); d != "" {
			t.Error(d)
		}
		w.c.Crash("b")
		w.await("its agent has crashed", 5*time.Second, func() bool { return f.Status().Agent == "" })
		time.Sleep(30 * time.Second)
		if m, err := f.Place("key"); err != nil || m.Labels["role"] != "sfu" || !strings.Contains(fmt.Sprint(f.Status().Err), "no scope") {
			t.Errorf("no other one has it: %v, %v, %+v", m, err, f.Status())
		}
		scope = scopeOf(t, w.c.Agent("c"))
		w.await("another one has it", 20*time.Second,
			func() bool { return f.Status().Agent == "c:8401" && differFrom(f, scope.Snapshot()) == "" })
	}, roles)
}

// routing.mjs follows a scope of real agents. If an agent does not have the scope, routing.mjs asks the next agent.
func TestScriptFollowsAScope(t *testing.T) {
	var scope *cluster.Scope
	var agents []*cluster.Agent
	var urls, join []string
	for _, id := range []string{"a", "b", "c"} {
		cfg := cluster.Config{
			ID:         id,
			Bind:       "127.0.0.1:0",
			APIAddr:    id + ".example:9000",
			Join:       join,
			Network:    cluster.Local,
			LeaseTTL:   10 * time.Second,
			Partitions: partitions,
			Log:        quiet,
		}
		roles(&cfg)
		agent, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.Close() }()
		<-agent.Ready()
		srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
		defer srv.Close()
		defer srv.CloseClientConnections()
		join, urls, agents = append(join, agent.Addr()), append(urls, srv.URL), append(agents, agent)
		if id == "c" {
			scope = scopeOf(t, agent)
		}
	}
	t.Setenv("SCOPE", "sfu & co")
	startScript(t, urls[0]).fails(urls[0], `this node has no scope "sfu & co" and no other scope`)
	s := startScript(t, urls...)
	s.ask(map[string]any{"ask": "ready"})
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("room-", i)
	}
	same := func(after string) {
		t.Helper()
		s.awaits(after, func(answer) bool { return scriptDiffers(s, scope.Snapshot(), urls[2], keys) == "" })
	}
	same("at the start")
	setRole(t, agents[2], "sfu")
	same("after a new role")
	for _, agent := range agents {
		setRole(t, agent, "gateway")
	}
	s.awaits("without members", func(a answer) bool { return len(a.Members) == 0 })
	got := s.ask(map[string]any{"ask": "place", "keys": keys[:1]}).Owners[0]
	if !strings.HasSuffix(got, `or no member belongs to the scope "sfu & co"`) {
		t.Errorf("without members: %s", got)
	}
}
