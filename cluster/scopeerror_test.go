package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// contains reports whether the text of err has all words.
func contains(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return true
}

// A scope without a member that can own anything says why, and works as soon as there is one.
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

// A lookup that finds no owner says how many members own nothing for which reason, and what to do.
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

// What Scope refuses, and why.
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

// A match that panics later costs a log line a minute. Members stay in the scope or out of it, and what
// leaves or drains owns nothing there all the same. The scope follows again when match works.
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
