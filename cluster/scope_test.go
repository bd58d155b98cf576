package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

func ofRole(role string) func(*cluster.Member) bool {
	return func(m *cluster.Member) bool { return m.Labels["role"] == role }
}

// roles gives each node a role by the last digit of its id: n00 is "even", n01 "odd".
func roles(cfg *cluster.Config) {
	cfg.Partitions, cfg.Labels = 64, map[string]string{"role": []string{"even", "odd"}[(cfg.ID[len(cfg.ID)-1]-'0')%2]}
}

// watchedScope is a scope at one agent. It records the runs and the batches of the scope.
type watchedScope struct {
	*cluster.Scope
	agent *cluster.Agent

	mu       sync.Mutex
	running  map[placement.Partition]int // runs whose context has not ended
	owned    map[placement.Partition]bool
	members  map[string]bool
	problems []string
}

func watchScope(t *testing.T, agent *cluster.Agent, role string) *watchedScope {
	t.Helper()
	scope, err := agent.Scope(role, ofRole(role))
	if err != nil {
		t.Fatal(err)
	}
	w := &watchedScope{
		Scope: scope, agent: agent,
		running: make(map[placement.Partition]int), owned: make(map[placement.Partition]bool), members: make(map[string]bool),
	}
	go func() {
		_ = scope.RunOwned(context.Background(), func(ctx context.Context, p placement.Partition) {
			w.locked(func() {
				if w.running[p]++; w.running[p] > 1 {
					w.problems = append(w.problems, fmt.Sprintf("two runs of %d", p))
				}
			})
			<-ctx.Done()
			w.locked(func() { w.running[p]-- })
		})
	}()
	go func() {
		for b := range scope.Watch(context.Background()) {
			w.locked(func() { w.apply(b) })
		}
	}()
	return w
}

func (w *watchedScope) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *watchedScope) apply(b events.Batch) {
	problem := func(what string, of any) {
		w.problems = append(w.problems, fmt.Sprintf("version %d %s %v", b.Version, what, of))
	}
	for _, o := range b.Released {
		if !w.owned[o.Partition] {
			problem("releases", o.Partition)
		}
		delete(w.owned, o.Partition)
	}
	for _, o := range b.Acquired {
		if w.owned[o.Partition] {
			problem("acquires again", o.Partition)
		}
		w.owned[o.Partition] = true
	}
	for _, id := range b.Left {
		if !w.members[string(id)] {
			problem("loses", id)
		}
		delete(w.members, string(id))
	}
	for _, id := range b.Joined {
		if w.members[string(id)] {
			problem("has again", id)
		}
		w.members[string(id)] = true
	}
}

// owns counts the partitions that the node owns in the scope, and compares them with the runs and with the events.
func (w *watchedScope) owns(t *testing.T) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	n, id := 0, w.agent.Config().ID
	for p := range placement.Partition(64) {
		owns := w.Owns(p)
		if owns {
			n++
		}
		if w.owned[p] != owns || (w.running[p] == 1) != owns {
			t.Errorf("%s, scope %s: owns %d: %v, by its events %v, runs %d", id, w.Name(), p, owns, w.owned[p], w.running[p])
		}
	}
	if owned := w.Owned(); len(owned) != n {
		t.Errorf("%s, scope %s: Owned has %d partitions, want %d", id, w.Name(), len(owned), n)
	}
	for _, m := range w.Members() {
		if !w.members[string(m.ID)] {
			t.Errorf("%s, scope %s: no event has told of member %s", id, w.Name(), m.ID)
		}
	}
	if len(w.Members()) != len(w.members) {
		t.Errorf("%s, scope %s: %d members, %d by its events", id, w.Name(), len(w.Members()), len(w.members))
	}
	for _, f := range w.problems {
		t.Errorf("%s, scope %s: %s", id, w.Name(), f)
	}
	w.problems = nil
	return n
}

// scopedCluster is a cluster in which each node has two scopes.
type scopedCluster struct {
	*clustertest.Cluster
	t      *testing.T
	scopes map[string][]*watchedScope // by id
}

func inScopedCluster(t *testing.T, scenario func(c *scopedCluster), config ...func(*cluster.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := started(t, 6, clustertest.Options{Config: func(cfg *cluster.Config) {
			roles(cfg)
			for _, set := range config {
				set(cfg)
			}
		}})
		c := &scopedCluster{nodes, t, make(map[string][]*watchedScope)}
		c.watch(c.IDs()...)
		scenario(c)
	})
}

func (c *scopedCluster) watch(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.scopes[id] = []*watchedScope{watchScope(c.t, c.Agent(id), "even"), watchScope(c.t, c.Agent(id), "odd")}
	}
}

// check waits until all nodes agree. Then it checks that each partition has one owner in each scope, that the owner has
// the scope's role, and that all nodes name this owner.
func (c *scopedCluster) check(when string) {
	c.t.Helper()
	c.WaitAgreed(30 * time.Second)
	synctest.Wait()
	for at, role := range []string{"even", "odd"} {
		total := 0
		for _, id := range c.IDs() {
			total += c.scopes[id][at].owns(c.t)
		}
		if total != 64 {
			c.t.Errorf("%s: the nodes own %d partitions of scope %s", when, total, role)
		}
		for p := range placement.Partition(64) {
			var first string
			for _, id := range c.IDs() {
				m, ok := c.scopes[id][at].OwnerOf(p)
				if !ok || m.Labels["role"] != role {
					c.t.Fatalf("%s: %s, scope %s: partition %d: %v %v", when, id, role, p, m, ok)
				}
				if first == "" {
					first = string(m.ID)
				}
				if first != string(m.ID) || !c.scopes[first][at].Owns(p) {
					c.t.Errorf("%s: scope %s: partition %d: %s names %s, another node %s", when, role, p, id, m.ID, first)
				}
			}
		}
	}
}

// After many changes, each partition has one owner in each scope, and all events and runs match the changes.
func TestScopesAfterChurn(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		c.check("start")
		c.Crash("n01")
		c.check("crash")
		c.Start("n06", "n07")
		c.watch("n06", "n07")
		c.check("join")
		if err := c.Agent("n02").Drain(c.t.Context()); err != nil {
			c.t.Error(err)
		}
		c.check("drain")
		if n := c.scopes["n02"][0].owns(c.t); n != 0 {
			c.t.Errorf("a draining node owns %d partitions", n)
		}
		if err := c.Agent("n02").Undrain(c.t.Context()); err != nil {
			c.t.Error(err)
		}
		c.check("undrain")
		if err := c.Agent("n03").Cordon(c.t.Context(), "n00", time.Minute, "test"); err != nil {
			c.t.Error(err)
		}
		c.check("cordon")
		c.Leave("n04")
		c.check("leave")
		c.Restart("n05")
		c.watch("n05")
		c.check("restart")
		if err := c.Agent("n03").SetWeight(0); err != nil {
			c.t.Error(err)
		}
		c.check("weight")
	})
}

// A node that was paused for longer than its lease owns nothing in any scope. When it resumes, its runs end and start
// again.
func TestScopesOfAFencedNode(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		c.check("start")
		w := c.scopes["n00"][0]
		if w.owns(c.t) == 0 {
			c.t.Fatal("it owns nothing")
		}
		c.Pause("n00")
		time.Sleep(time.Minute)
		for p := range placement.Partition(64) {
			if w.Owns(p) {
				c.t.Fatalf("a paused node owns partition %d", p)
			}
		}
		if owned := w.Owned(); len(owned) > 0 {
			c.t.Errorf("a paused node owns %d partitions", len(owned))
		}
		c.Resume("n00")
		c.check("resume")
		if w.owns(c.t) == 0 {
			c.t.Error("it owns nothing again")
		}
	})
}

// A snapshot of a scope has the scope's members and table. Latest announces a new snapshot, as it does for the agent.
// What the snapshot says about the node itself matches the agent's snapshot.
func TestSnapshotOfAScope(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		c.check("start")
		time.Sleep(5 * time.Second) // until heartbeats carry the digests
		agent, w := c.Agent("n00"), c.scopes["n00"][0]
		s, replaced := w.Latest()
		if w.Snapshot() != s || len(s.Members) != 3 || len(s.Table.Nodes()) != 3 || s.Digest() == agent.Snapshot().Digest() {
			c.t.Errorf("it has %d members, %d candidates, table %v; the agent has %v",
				len(s.Members), len(s.Table.Nodes()), s.Digest(), agent.Snapshot().Digest())
		}
		for _, m := range s.Members {
			if m.Labels["role"] != "even" || !s.InSync(m) {
				c.t.Errorf("%s: %v, in sync: %v", m.ID, m.Labels, s.InSync(m))
			}
		}
		if s.Version() == 0 || !s.Converged() || s.Self.ID != "n00" || s.Stats.HeartbeatsSent == 0 {
			c.t.Errorf("%+v", s)
		}
		c.Crash("n02")
		for len(w.Snapshot().Members) > 2 {
			<-replaced
			_, replaced = w.Latest()
		}
		c.Pause("n00")
		time.Sleep(time.Minute)
		c.Resume("n00")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s := w.Snapshot(); !s.Stale() || len(s.Members) == 0 || len(w.Owned()) > 0 {
			c.t.Errorf("fenced: stale %v, %d members, owns %d", s.Stale(), len(s.Members), len(w.Owned()))
		}
	})
}

// An isolated node owns nothing in its scopes, and its lookups use the last table, as the agent's lookups do. After the
// split, the node owns nothing in a scope before the agent owns something.
func TestScopesOfAnIsolatedNode(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		c.check("start")
		agent, w := c.Agent("n00"), c.scopes["n00"][0]
		c.Split([]string{"n00", "n01"}, []string{"n02", "n03", "n04", "n05"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if phase := agent.Snapshot().Phase; phase != cluster.PhaseIsolated {
			c.t.Fatalf("it is %v", phase)
		}
		if n := w.owns(c.t); n != 0 {
			c.t.Errorf("an isolated node owns %d partitions", n)
		}
		if _, err := w.Place("room-17"); err != nil {
			c.t.Error(err)
		}
		c.Heal()
		for len(agent.Owned()) == 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			for p := range placement.Partition(64) {
				if w.Owns(p) && len(agent.Owned()) == 0 {
					c.t.Fatalf("%v: it owns partition %d of the scope before the agent owns any", agent.Snapshot().Phase, p)
				}
			}
		}
		c.check("heal")
	}, func(cfg *cluster.Config) { cfg.MinMembers, cfg.Debounce = 4, 500*time.Millisecond })
}

// Handoff does not apply to scopes. Scopes still work if Config.Handoff is set.
func TestScopesBesideHandoff(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		c.check("start")
		c.Crash("n01")
		c.check("crash")
		c.Leave("n02")
		c.check("leave")
		c.Start("n06")
		c.watch("n06")
		c.check("join")
	}, func(cfg *cluster.Config) { cfg.Handoff = 10 * time.Second })
}

// Leave waits for the runs of scopes. After that, lookups in a scope fail as the agent's lookups do, and the sequences
// of Watch end.
func TestLeaveWaitsForTheRunsOfScopes(t *testing.T) {
	inScopedCluster(t, func(c *scopedCluster) {
		agent, other := c.Agent("n00"), c.Agent("n01")
		w := c.scopes["n00"][0]
		synctest.Wait()
		owned := w.owns(t)
		over := 0
		var mu sync.Mutex
		ended := make(chan error, 1)
		go func() {
			ended <- w.RunOwned(context.Background(), func(ctx context.Context, _ placement.Partition) {
				<-ctx.Done()
				time.Sleep(5 * time.Second)
				if _, member := other.Member("n00"); !member {
					t.Error("the node has left before the clean-up was over")
				}
				mu.Lock()
				over++
				mu.Unlock()
			})
		}()
		time.Sleep(time.Second)
		c.Leave("n00")
		if err := <-ended; !errors.Is(err, events.ErrClosed) || over != owned || owned == 0 {
			t.Errorf("%d of %d clean-ups are over; RunOwned: %v", over, owned, err)
		}
		if _, err := w.Place("room-17"); !errors.Is(err, cluster.ErrClosed) || w.IsOwner("room-17") {
			t.Errorf("Place: %v", err)
		}
		if _, err := agent.Scope("late", ofRole("even")); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("Scope: %v", err)
		}
		c.check("leave")
	})
}

// If a run of a scope hangs, the node still leaves, and the error names the scope and the partition.
func TestLeaveWithARunOfAScopeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{Config: roles})
		scope, err := c.Agent("n00").Scope("evens", ofRole("even"))
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		defer close(release)
		go func() {
			_ = scope.RunOwned(t.Context(), func(context.Context, placement.Partition) { <-release })
		}()
		time.Sleep(time.Second)
		err = c.Agent("n00").Leave(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !contains(err, `scope "evens"`, "such as 0", "64") {
			t.Errorf("Leave: %v", err)
		}
	})
}

// contains reports whether the text of err contains all words.
func contains(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return true
}

// If no member of a scope can own anything, the error says why. As soon as a member can own something, lookups in the
// scope succeed.
func TestEmptyScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 1, clustertest.Options{Config: roles})
		odd, err := c.Agent("n00").Scope("odd", ofRole("odd"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := odd.Place("room-17"); !errors.Is(err, cluster.ErrEmptyScope) || !contains(err, `"odd"`, "none of the 1 live members") {
			t.Errorf("no member: %v", err)
		}
		if owners := odd.Owners("room-17", 3); len(owners) != 0 {
			t.Errorf("no member: owners %v", owners)
		}
		c.Start("n01")
		c.WaitAgreed(10 * time.Second)
		if m, err := odd.Place("room-17"); err != nil || m.ID != "n01" {
			t.Errorf("one member: %v, %v", m, err)
		}
		if owners := odd.Owners("room-17", 3); len(owners) != 1 || odd.IsOwner("room-17") {
			t.Errorf("one member: owners %v, own %v", owners, odd.IsOwner("room-17"))
		}
		if err := c.Agent("n01").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := odd.Place("room-17"); !errors.Is(err, cluster.ErrEmptyScope) || !contains(err, "1 of the 2 live members") {
			t.Errorf("it drains: %v", err)
		}
		if err := c.Agent("n01").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Agent("n00").Cordon(t.Context(), "n01", time.Minute, "disk errors"); err != nil {
			t.Fatal(err)
		}
		if _, err := odd.Place("room-17"); !errors.Is(err, cluster.ErrEmptyScope) ||
			!contains(err, "1 cordoned", "end a cordon") || contains(err, "drain") {
			t.Errorf("it is cordoned: %v", err)
		}
	})
}

// If a lookup finds no owner, the error says how many members own nothing for each reason, and what to do.
func TestNoMembersSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		for _, id := range []string{"n00", "n01"} {
			if err := c.Agent(id).SetWeight(0); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Agent("n02").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitAgreed(10 * time.Second)
		_, err := c.Agent("n00").Place("room-17")
		if !errors.Is(err, cluster.ErrNoMembers) || !contains(err, "1 draining", "2 of weight 0", "undrain", "give a member a weight") {
			t.Errorf("two members of weight 0, and one drains: %v", err)
		}
		if contains(err, "cordon") || contains(err, "settling") || contains(err, "flapping") {
			t.Errorf("it names what is not so: %v", err)
		}
	})
}

// Scope rejects invalid arguments with an error that says why.
func TestScopeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 1, clustertest.Options{Config: roles})
		agent := c.Agent("n00")
		if _, err := agent.Scope("even", ofRole("even")); err != nil {
			t.Fatal(err)
		}
		if _, err := agent.Scope("even", ofRole("odd")); !errors.Is(err, cluster.ErrScopeExists) || !contains(err, `"even"`) {
			t.Errorf("a name twice: %v", err)
		}
		if _, err := agent.Scope("", ofRole("odd")); err == nil {
			t.Error("no name")
		}
		if _, err := agent.Scope("nil", nil); err == nil {
			t.Error("no match")
		}
		for _, name := range []string{strings.Repeat("x", 65), "\xff"} {
			if _, err := agent.Scope(name, ofRole("odd")); !contains(err, "64 bytes") {
				t.Errorf("the name %q: %v", name, err)
			}
		}
		if _, err := agent.Scope("odd", func(*cluster.Member) bool { panic("oops") }); !contains(err, "oops") {
			t.Errorf("match panics: %v", err)
		}
		if _, err := agent.Scope("odd", ofRole("odd")); err != nil {
			t.Errorf("after a refusal: %v", err)
		}
		if all := agent.Scopes(); len(all) != 2 || all[0].Name() != "even" || all[1].Name() != "odd" {
			t.Errorf("the scopes are %v", all)
		}
		for i := len(agent.Scopes()); i < cluster.MaxScopes; i++ {
			if _, err := agent.Scope(fmt.Sprint("tenant-", i), ofRole("odd")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := agent.Scope("one more", ofRole("odd")); !errors.Is(err, cluster.ErrManyScopes) || len(agent.Scopes()) != cluster.MaxScopes {
			t.Errorf("%d scopes and one more: %v", len(agent.Scopes()), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 1, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Strategy = placement.LeastPartitions(1, 3) }})
		_, err := c.Agent("n00").Scope("even", ofRole("even"))
		if !errors.Is(err, cluster.ErrScopeStrategy) || !contains(err, "least-partitions") {
			t.Errorf("a strategy that remembers: %v", err)
		}
	})
}

// If match panics later, the agent logs one line per minute and the scope's members don't change, but a member that
// leaves or drains still loses its partitions. When match works again, the scope updates its members.
func TestScopeKeepsItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logbook
		c := started(t, 3, clustertest.Options{Config: roles, Log: book.handler()})
		var fails atomic.Bool
		scope, err := c.Agent("n00").Scope("even", func(m *cluster.Member) bool {
			if fails.Load() {
				panic("oops")
			}
			return m.Labels["role"] == "even"
		})
		if err != nil {
			t.Fatal(err)
		}
		fails.Store(true)
		c.Leave("n02")
		time.Sleep(90 * time.Second)
		if m, err := scope.Place("room-17"); err != nil || m.ID != "n00" || !scope.IsOwner("room-17") {
			t.Errorf("after the other one has left: %v, %v", m, err)
		}
		if err := c.Agent("n00").Drain(t.Context()); err != nil || scope.IsOwner("room-17") {
			t.Errorf("after a drain: %v, owner: %v", err, scope.IsOwner("room-17"))
		}
		if err := c.Agent("n00").Undrain(t.Context()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(book.String(), "scope failed; keeping what it knew"); n != 2 {
			t.Errorf("%d log lines in 90 s", n)
		}
		fails.Store(false)
		time.Sleep(10 * time.Second)
		if m, err := scope.Place("room-17"); err != nil || m.ID != "n00" || len(scope.Members()) != 1 {
			t.Errorf("%v, %v; %d members", m, err, len(scope.Members()))
		}
	})
}
