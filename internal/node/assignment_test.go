package node_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// If a leveling pass fails, no partition moves, and the coordinator logs the problem once a minute.
func TestLevelFault(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.Strategy = unlevel{placement.LeastPartitions(1, 1)} }, "a", "b", "c")
	w.run(20 * time.Second)
	before := w.logged("a", "strategy failed; keeping the last table")
	w.run(time.Minute)
	if n := w.logged("a", "strategy failed; keeping the last table") - before; n != 1 {
		t.Errorf("the coordinator logged the problem %d times in a minute", n)
	}
	w.agreed(t)
}

// The active member with the smallest incarnation coordinates, because its process has run longest. If two incarnations
// are equal, the smaller id decides.
func TestCoordinator(t *testing.T) {
	for name, tt := range map[string]struct {
		incarnations map[lease.NodeID]uint64
		drains       string
		want         string
	}{
		"alone":             {map[lease.NodeID]uint64{"b": 5}, "", "b"},
		"the later id":      {map[lease.NodeID]uint64{"a": 6, "b": 5}, "", "b"},
		"the last of three": {map[lease.NodeID]uint64{"a": 6, "b": 5, "c": 4}, "", "c"},
		"the oldest drains": {map[lease.NodeID]uint64{"a": 4, "b": 5, "c": 6}, "a", "b"},
		"of one age":        {map[lease.NodeID]uint64{"a": 5, "b": 5}, "", "a"},
	} {
		w := newNetwork(t, func(c *node.Config) {
			c.Strategy = unlevel{placement.LeastPartitions(1, 1)}
			c.Self.Incarnation = tt.incarnations[c.Self.ID]
		})
		for _, id := range slices.Sorted(maps.Keys(tt.incarnations)) {
			w.add(string(id))
		}
		if w.run(5 * time.Second); tt.drains != "" {
			w.nodes[tt.drains].Drain(w.now)
		}
		w.run(20 * time.Second)
		clear(w.last)
		w.run(2 * time.Minute)
		for _, id := range w.ids { // only a coordinator reviews the assignment
			if problems := w.logged(id, "strategy failed; keeping the last table"); (problems > 0) != (id == tt.want) {
				t.Errorf("%s: %s logged %d problems", name, id, problems)
			}
		}
	}
}

// Of two assignments that began independently, all nodes use the older one, even if its writer and all its voters are
// gone. Otherwise a node that holds it would compute other owners than the rest for as long as it runs.
func TestOlderAssignment(t *testing.T) {
	for _, voter := range []lease.NodeID{"a", "b", "x"} {
		w := newNetwork(t, func(c *node.Config) {
			c.Strategy = placement.LeastPartitions(1, 3)
			c.Self.Incarnation += 100
		}, "a", "b")
		b := w.nodes["b"]
		table, err := placement.Compute(placement.Input{
			Partitions: 8, Strategy: placement.LeastPartitions(1, 3), Nodes: []placement.Node{{ID: voter, Weight: 100}},
		})
		if err != nil {
			t.Fatal(err)
		}
		older := assignment.Record(table, assignment.Coordinator{ID: voter, Since: 1, Voters: []lease.NodeID{voter}, Active: 1})
		if before := told(t, b, w.now); before.Digest() == older.Digest() {
			t.Fatal("b has the other assignment already")
		}
		m := w.nodes["a"].Leases().Request(w.now, nil, nil)
		m.Extra = append([]byte{0x92, node.ExtraAssignment}, older.Encode()...)
		b.Receive(w.now, lease.Encode(m))
		if told(t, b, w.now).Digest() != older.Digest() {
			t.Errorf("the node does not use the older assignment of %s", voter)
		}
	}
}

// unlevel is a strategy with an assignment. Its leveling passes panic.
type unlevel struct{ placement.Strategy }

func (s unlevel) Keep(nodes []placement.Node, held []int) ([]int, error) {
	return s.Strategy.(placement.Stateful).Keep(nodes, held)
}

func (unlevel) Level([]placement.Node, []int, []placement.Partition, bool) []placement.Move {
	panic("no scale")
}

// told returns the assignment in a node's full state.
func told(t *testing.T, n *node.Node, now time.Time) *assignment.Assignment {
	t.Helper()
	m, err := lease.Decode(n.Sync(now))
	if err != nil {
		t.Fatal(err)
	}
	a, err := assignment.Decode(m.Extra[2:], 8) // skips the array header and the kind
	if err != nil {
		t.Fatal(err)
	}
	return a
}
