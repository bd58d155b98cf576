package agreement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func agreementOn(store pinstore.Store, partitions string) *Agreement {
	return &Agreement{
		Store: store, Log: slog.New(slog.DiscardHandler), TTL: time.Second,
		Settings: pinstore.Settings{Cluster: "c", Values: []pinstore.Setting{{Name: "partitions", Value: partitions}}},
		Explain:  func(pinstore.Difference) string { return "" },
	}
}

// A node has agreed on its settings, and then another node records different settings while the first node does not
// reach the store. The first node still wins when it comes back, unless its lease has ended or it was not live in
// between, because then the other node was right to consider it dead.
func TestEarlierWins(t *testing.T) {
	self, other := lease.Incarnation{Node: "a", Number: 1}, lease.Incarnation{Node: "b", Number: 1}
	for name, c := range map[string]struct {
		again  lease.Incarnation
		fences uint64
		gap    bool // the node was not live in between
		brief  bool // the node was soon live again, but the store was away
		wins   bool
	}{
		"store was away":         {again: self, wins: true},
		"lease has ended":        {again: self, fences: 1},
		"was not live":           {again: self, gap: true},
		"live again, store away": {again: self, gap: true, brief: true, wins: true},
		"next incarnation":       {again: lease.Incarnation{Node: "a", Number: 2}},
		"lease, store away":      {again: self, fences: 1, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := pinstore.NewMemory()
				first, late := agreementOn(store, "64"), agreementOn(store, "128")
				check := func(a *Agreement, self lease.Incarnation, fences uint64) bool {
					t.Helper()
					if err := a.Check(t.Context(), self, fences); err != nil {
						t.Fatal(err)
					}
					if err := a.Refused(); err != nil && !errors.Is(err, ErrSettings) {
						t.Fatal(err)
					}
					return a.Refused() == nil
				}
				if !check(first, self, 0) || check(late, other, 0) {
					t.Fatal("the first to come is not the only one")
				}
				if c.gap {
					check(first, lease.Incarnation{}, 0)
				}
				if c.brief {
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					if first.Check(ended, self, 0) == nil {
						t.Fatal("the store is not away")
					}
				}
				time.Sleep(2 * time.Second)
				if !check(late, other, 0) {
					t.Fatal(late.Refused())
				}
				if check(first, c.again, c.fences) != c.wins || check(late, other, 0) == c.wins {
					t.Errorf("wins: %v; want %v", first.Refused(), c.wins)
				}
			})
		})
	}
}

// keyed is a node with the gossip keys that it accepts now.
type keyed struct {
	*Agreement
	self lease.Incarnation
	keys []string
}

func (k *keyed) check(t *testing.T) error {
	t.Helper()
	if err := k.Check(t.Context(), k.self, 0); err != nil {
		t.Fatal(err)
	}
	return k.Refused()
}

func keyedNodes(names ...lease.NodeID) []*keyed {
	store := pinstore.NewMemory()
	var nodes []*keyed
	for _, name := range names {
		k := &keyed{Agreement: agreementOn(store, "64"), self: lease.Incarnation{Node: name, Number: 1}, keys: []string{"old"}}
		k.Keys = func() []string { return slices.Clone(k.keys) }
		nodes = append(nodes, k)
	}
	return nodes
}

// Another cluster has the same name but a different gossip key, or one of the two clusters has no key. Nodes of the
// second cluster are refused, and are accepted when the first cluster has ended.
func TestAnotherKey(t *testing.T) {
	for _, c := range []struct{ first, key []string }{{[]string{"old"}, []string{"new"}}, {[]string{"old"}, nil}, {nil, []string{"new"}}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := keyedNodes("a", "b", "x")
			x := nodes[2]
			nodes[0].keys, nodes[1].keys, x.keys = c.first, c.first, c.key
			differ := fmt.Sprintf("gossip key (by its fingerprint) is %s here and %s on ", append(c.key, "none")[0], append(c.first, "none")[0])
			since := time.Now()
			for time.Since(since) < 5*time.Second {
				for _, k := range nodes[:2] {
					if err := k.check(t); err != nil {
						t.Fatalf("%s: %v", k.self.Node, err)
					}
				}
				err := x.check(t)
				if want := time.Since(since) > x.TTL; (err != nil) != want {
					t.Fatalf("after %v: %v", time.Since(since), err)
				}
				if err != nil && (!errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), differ)) {
					t.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			if err := x.check(t); err != nil {
				t.Errorf("alone: %v", err)
			}
		})
	}
}

// A cluster changes its gossip key node by node, with short and long pauses. None of its nodes is refused.
func TestKeyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := keyedNodes("a", "b", "c")
		checkAll := func() {
			t.Helper()
			for _, k := range nodes {
				if err := k.check(t); err != nil {
					t.Fatalf("%s with %v: %v", k.self.Node, k.keys, err)
				}
			}
		}
		for _, pause := range []time.Duration{0, 50 * time.Millisecond, 3 * time.Second} {
			for _, keys := range [][]string{{"old"}, {"old", "new"}, {"new", "old"}, {"new"}, {"new", "old"}, {"old", "new"}} {
				for _, k := range nodes {
					k.keys = keys
					for since := time.Now(); ; time.Sleep(50 * time.Millisecond) {
						if checkAll(); time.Since(since) >= pause {
							break
						}
					}
				}
			}
		}
		time.Sleep(2 * time.Second)
		checkAll()
	})
}

// owned is a store that belongs to another cluster.
type owned struct {
	pinstore.Store
	calls int
}

func (o *owned) Agree(context.Context, lease.Incarnation, time.Duration, pinstore.Settings) (pinstore.Agreed, error) {
	o.calls++
	return pinstore.Agreed{
		Differ: []pinstore.Difference{{Setting: "cluster", Ours: `"c"`, Theirs: `"prod"`, By: lease.Incarnation{Node: "a", Number: 1}}},
	}, nil
}

// If the store belongs to another cluster, the error names both clusters and says what to change.
func TestAnotherCluster(t *testing.T) {
	store := &owned{}
	a := agreementOn(store, "64")
	if err := a.Check(t.Context(), lease.Incarnation{Node: "x", Number: 1}, 0); err != nil {
		t.Fatal(err)
	}
	err := a.Refused()
	for _, text := range []string{
		`cluster "prod" uses the keys of this store (according to a)`,
		`this node belongs to cluster "c": give each cluster its own key prefix`,
	} {
		if !errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want an ErrSettings with %q", err, text)
		}
	}
	if store.calls != 1 {
		t.Errorf("the store was asked %d times; no list has such nodes", store.calls)
	}
}

// trialOnly is a store that fails unless Settings.Trial is set.
type trialOnly struct{ pinstore.Store }

func (s trialOnly) Agree(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	settings pinstore.Settings,
) (pinstore.Agreed, error) {
	if !settings.Trial {
		return pinstore.Agreed{}, pinstore.ErrStore
	}
	return s.Store.Agree(ctx, self, ttl, settings)
}

// If the settings differ, the node is refused after its first call to the store, even if the second call fails. A
// different gossip key alone is not enough.
func TestRefusedUnlisted(t *testing.T) {
	self := lease.Incarnation{Node: "x", Number: 1}
	for partitions, refused := range map[string]bool{"128": true, "64": false} {
		nodes := keyedNodes("a", "x")
		if err := nodes[0].check(t); err != nil {
			t.Fatal(err)
		}
		x := agreementOn(trialOnly{nodes[0].Store}, partitions)
		x.Keys = func() []string { return []string{"new"} }
		err := x.Check(t.Context(), self, 0)
		if (err == nil) != refused || errors.Is(x.Refused(), ErrSettings) != refused {
			t.Errorf("%s partitions: %v, refused: %v", partitions, err, x.Refused())
		}
		if refused && strings.Contains(x.Refused().Error(), "gossip key") {
			t.Errorf("a key that may be changing is named: %v", x.Refused())
		}
	}
}
