package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a, b and c share the keys: a 334, b 303, c 363
	// d has joined: a 334, b 303, c 363, d 0
	// d has its share: a 234, b 237, c 237, d 292
	// b has left: a 308, c 309, d 383
}

// writers write new values while the fleet changes, and record the confirmed values.
type writers struct {
	wait sync.WaitGroup
	last []map[string]string // of each writer
}

func (w *writers) run(ctx context.Context, t *testing.T, via []*node) {
	t.Helper()
	for i := range via {
		confirmed := make(map[string]string)
		w.last = append(w.last, confirmed)
		w.wait.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprint(i, "-", rand.IntN(200)), fmt.Sprint(n)
				if err := via[i].put(context.WithoutCancel(ctx), key, value); err != nil {
					t.Error(err)
				}
				confirmed[key] = value
				time.Sleep(time.Millisecond) // without a pause, the writers would starve the agents
			}
		})
	}
}

func (w *writers) check(ctx context.Context, t *testing.T, what string, at *node) {
	t.Helper()
	for _, confirmed := range w.last {
		for key, want := range confirmed {
			if got, err := at.get(ctx, key); err != nil || got != want {
				t.Errorf("%s: %s is %q, %v; %q was confirmed", what, key, got, err, want)
			}
		}
	}
}

// TestNothingIsLost: while clients write, one node joins and another node leaves. No confirmed write is lost.
// Partitions move only to the node that joins, and only from the node that leaves.
func TestNothingIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var f fleet
	defer f.close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		_, err := f.join(ctx, cluster.Config{ID: id})
		must(err)
	}
	a, b := f.nodes[0], f.nodes[1]
	must(until(ctx, f.settled))

	phase := func(what string, change func() error, may func(events.Move) bool) {
		t.Helper()
		before := a.agent.Snapshot().State
		writing, stop := context.WithCancel(ctx)
		var w writers
		w.run(writing, t, []*node{a, f.nodes[2]})
		err := change()
		stop()
		w.wait.Wait()
		must(err)
		w.check(ctx, t, what, a)
		moved := events.Diff(before, a.agent.Snapshot().State).Moved
		if len(moved) == 0 {
			t.Errorf("%s: nothing moved", what)
		}
		for _, m := range moved {
			if !may(m) {
				t.Errorf("%s: partition %d moved from %s to %s", what, m.Partition, m.From, m.To)
			}
		}
	}
	d, err := f.join(ctx, cluster.Config{ID: "d", StartDraining: true, SlowStart: 500 * time.Millisecond})
	must(err)
	phase("d comes", func() error { return f.fill(ctx, d) }, func(m events.Move) bool { return m.To == "d" })
	phase("b goes", func() error { return f.remove(ctx, b) }, func(m events.Move) bool { return m.From == "b" })
	if held, _, _ := b.count(); held != 0 {
		t.Errorf("b left with %d partitions", held)
	}
}

// TestGive tests the steps of a handoff between two nodes.
func TestGive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var f fleet
	defer f.close()
	n, err := f.join(ctx, cluster.Config{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := until(ctx, n.settled); err != nil {
		t.Fatalf("an owner does not open each of its partitions, after which n.held may be read without its lock: %v", err)
	}
	for _, value := range []string{"old", "new"} {
		if err := n.put(ctx, "key", value); err != nil {
			t.Fatal(err)
		}
	}
	p := n.agent.Partition("key")
	if _, ok := n.give(p); ok || n.drop(p) {
		t.Error("an owner gives away, or drops, its own partition")
	}
	n.held[p].open = false // as if the node still lacked data
	if n.use("key", func(map[string]entry) {}) {
		t.Error("an owner serves what it does not have")
	}
	n.held[p].open = true
	if err := n.agent.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := until(ctx, func() bool { _, open, _ := n.count(); return open == 0 }); err != nil {
		t.Fatalf("a lost partition is not closed: %v", err)
	}
	n.held[p].open = true // as if the copy were still in progress
	for range 2 {
		data, ok := n.give(p)
		if want := (entry{"new", 2}); !ok || data["key"] != want {
			t.Errorf("gives %v, %v", data, ok)
		}
	}
	if n.held[p].open {
		t.Error("what was given away is still open to change")
	}
	if n.update(p, func(*shard) {}) {
		t.Error("the partition of another node can be changed")
	}
	for range 2 {
		if !n.drop(p) || n.held[p] != nil {
			t.Error("does not drop what another has")
		}
	}
}

func TestMerge(t *testing.T) {
	older, newer := map[string]entry{"k": {"old", 1}, "x": {"x", 1}}, map[string]entry{"k": {"new", 2}}
	want := map[string]entry{"k": {"new", 2}, "x": {"x", 1}}
	for _, order := range [][]map[string]entry{{older, newer}, {newer, older}, {older, newer, older, newer}} {
		got := make(map[string]entry)
		for _, data := range order {
			merge(got, data)
		}
		if !maps.Equal(got, want) {
			t.Errorf("merging %v gives %v", order, got)
		}
	}
}
