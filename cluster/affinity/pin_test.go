package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// pinned checks Pin on two nodes, a and b, that share a store.
func pinned(t *testing.T, a, b *affinity.Resolver) {
	t.Helper()
	d := affinity.Demand{Size: 2}
	for i := range 10 { // by hash, some of these rooms belong to the other node
		room := fmt.Sprint("chosen-", i)
		first, err := a.Pin(t.Context(), room, "b", d)
		if err != nil || first.Node != "b" || first.Source == affinity.Pinned || first.Epoch == 0 {
			t.Fatalf("%s: %+v, %v", room, first, err)
		}
		for _, node := range []lease.NodeID{"a", "b", "unknown"} {
			again, err := b.Pin(t.Context(), room, node, d)
			if err != nil || again.Incarnation != first.Incarnation || again.Epoch != first.Epoch || again.Source != affinity.Pinned {
				t.Errorf("%s at %s, when it is pinned: %+v, %v", room, node, again, err)
			}
		}
		if got, err := b.Resolve(t.Context(), room, d); err != nil || got.Node != "b" {
			t.Errorf("it resolves to %+v, %v", got, err)
		}
	}
	_, err := a.Pin(t.Context(), "nowhere", "unknown", d)
	if !errors.Is(err, affinity.ErrNotLive) || !strings.Contains(err.Error(), "unknown: it has not joined, or has left: choose") {
		t.Errorf("an unknown node: %v", err)
	}
	if _, err := a.Lookup(t.Context(), "nowhere"); !errors.Is(err, affinity.ErrNoPin) {
		t.Errorf("after that: %v", err)
	}
	if _, err := a.Pin(t.Context(), "", "b", d); !errors.Is(err, affinity.ErrName) {
		t.Errorf("no name: %v", err)
	}

	homes := make([]lease.NodeID, 8)
	var wait sync.WaitGroup
	for i := range homes {
		wait.Go(func() {
			r, node := a, lease.NodeID("a")
			if i%2 == 0 {
				r, node = b, "b"
			}
			got, err := r.Pin(t.Context(), "raced", node, d)
			if err != nil {
				t.Error(err)
			}
			homes[i] = got.Node
		})
	}
	wait.Wait()
	if len(slices.Compact(homes)) != 1 {
		t.Errorf("concurrent callers got %v", homes)
	}

	if err := a.Release(t.Context(), "raced"); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Pin(t.Context(), "raced", "a", d); err != nil || got.Node != "a" {
		t.Errorf("after a release: %+v, %v", got, err)
	}
}

// A caller can choose the node of a room that does not live on any node. A node that accepts no rooms does not get the
// room.
func TestPinChosenNode(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		pinned(t, f.rooms["a"], f.rooms["b"])
		d := affinity.Demand{Size: 2}
		if got, err := f.rooms["a"].Pin(t.Context(), "of c", "c", d); err != nil || got.Node != "c" {
			t.Fatalf("%+v, %v", got, err)
		}
		if err := f.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := f.rooms["a"].Pin(t.Context(), "drained", "b", d)
		if !errors.Is(err, affinity.ErrNotLive) || !strings.Contains(err.Error(), "draining") {
			t.Errorf("a draining node: %v", err)
		}
		f.crash("c")
		time.Sleep(2 * soon)
		if got, err := f.rooms["a"].Pin(t.Context(), "of c", "a", d); err != nil || got.Node != "a" {
			t.Errorf("its node is dead: %+v, %v", got, err)
		}
		f.Pause("a")
		time.Sleep(2 * soon)
		f.Resume("a")
		for !f.Agent("a").Snapshot().Fenced {
			time.Sleep(time.Millisecond)
		}
		if _, err := f.rooms["a"].Pin(t.Context(), "fenced", "a", d); !errors.Is(err, affinity.ErrFenced) {
			t.Errorf("during a fence: %v", err)
		}
	})
}

// All instances together respect the hard ceiling of the node.
func TestPinHardCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{HardCeiling: 100}, "a", "b", "c")
		placed := 0
		for i := range 3 * capacity / 100 {
			r := f.rooms[[]string{"a", "b", "c"}[i%3]]
			switch got, err := r.Pin(t.Context(), fmt.Sprint("big-", i), "b", affinity.Demand{Units: 100}); {
			case err == nil && got.Node == "b":
				placed++
			case !errors.Is(err, affinity.ErrNoCapacity):
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if placed != capacity/100 {
			t.Errorf("%d rooms of 100 units on a node of %d", placed, capacity)
		}
	})
}

// The same checks must pass with Redis and real agents.
func TestPinOverRedis(t *testing.T) {
	server := redistest.Start(t)
	var rooms []*affinity.Resolver
	var agents []*cluster.Agent
	for _, id := range []string{"a", "b"} {
		cfg := cluster.Config{
			ID:       id,
			Cluster:  "pins",
			Bind:     "127.0.0.1:0",
			Network:  cluster.Local,
			LeaseTTL: 10 * time.Second,
			Capacity: capacity,
		}
		for _, other := range agents {
			cfg.Join = append(cfg.Join, other.Addr())
		}
		agent, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close() })
		redis, err := rueidisconn.Open(context.Background(), rueidisconn.Options{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(redis, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		r, err := affinity.Start(agent, store, affinity.Config{Budget: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		agents, rooms = append(agents, agent), append(rooms, r)
	}
	for _, agent := range agents {
		redistest.Until(t, "both are active", func() bool {
			s := agent.Snapshot()
			return s.Converged() && len(s.Table.Nodes()) == 2
		})
	}
	pinned(t, rooms[0], rooms[1])
}
