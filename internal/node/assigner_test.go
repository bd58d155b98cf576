package node

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// Exchanges are spaced, the same one is not tried again at once, and at most three run
// at a time.
func TestFetch(t *testing.T) {
	type step struct {
		ms     int
		digest placement.Digest
		done   int // exchanges that end before
		want   bool
	}
	for name, steps := range map[string][]step{
		"spaced":         {{0, 1, 0, true}, {199, 2, 0, false}, {200, 2, 0, true}},
		"the same again": {{0, 1, 0, true}, {1999, 1, 1, false}, {2000, 1, 0, true}},
		"three at most":  {{0, 1, 0, true}, {300, 2, 0, true}, {600, 3, 0, true}, {900, 4, 0, false}, {1200, 4, 1, true}},
	} {
		var f fetch
		for _, s := range steps {
			f.running -= s.done
			got := f.may(at(s.ms), s.digest)
			if got {
				f.begin(at(s.ms), s.digest, 200*time.Millisecond, 2*time.Second)
			}
			if got != s.want {
				t.Errorf("%s: after %d ms: %v", name, s.ms, got)
			}
		}
	}
}

// The oldest active member coordinates, if it is active in its own view, too.
func TestCoordinates(t *testing.T) {
	member := func(id lease.NodeID, incarnation uint64, state lease.State) lease.Member {
		return lease.Member{Record: &lease.Record{Profile: lease.Profile{ID: id, Incarnation: incarnation}}, State: state}
	}
	for name, tt := range map[string]struct {
		phase   Phase
		members []lease.Member
		want    bool
	}{
		"alone":             {Active, []lease.Member{member("b", 5, lease.Active)}, true},
		"settling":          {Settling, []lease.Member{member("b", 5, lease.Settling)}, false},
		"oldest":            {Active, []lease.Member{member("a", 6, lease.Active), member("b", 5, lease.Active)}, true},
		"younger":           {Active, []lease.Member{member("b", 5, lease.Active), member("c", 4, lease.Active)}, false},
		"the oldest drains": {Active, []lease.Member{member("a", 4, lease.Draining), member("b", 5, lease.Active)}, true},
		"of one age":        {Active, []lease.Member{member("a", 5, lease.Active), member("b", 5, lease.Active)}, false},
	} {
		n := &Node{core: core{self: "b"}, life: lifecycle{phase: tt.phase}}
		n.connect()
		if got := n.assigner.coordinates(&lease.View{Members: tt.members}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// unlevel is a strategy that remembers, with a fault in its passes.
type unlevel struct{ placement.Strategy }

func (s unlevel) Keep(nodes []placement.Node, held []int) ([]int, error) {
	return s.Strategy.(placement.Stateful).Keep(nodes, held)
}

func (unlevel) Level([]placement.Node, []int, []placement.Partition, bool) []placement.Move {
	panic("no scale")
}

// When a pass fails, owners stay, and the coordinator logs the problem once a minute.
func TestLevelFault(t *testing.T) {
	w := newNetwork(t, func(c *Config) { c.Strategy = unlevel{placement.LeastPartitions(1, 1)} }, "a", "b", "c")
	w.run(20 * time.Second)
	before := w.logged("a", "strategy failed; keeping the last table")
	w.run(time.Minute)
	if n := w.logged("a", "strategy failed; keeping the last table") - before; n != 1 {
		t.Errorf("the coordinator logged the problem %d times in a minute", n)
	}
	w.agreed(t)
}

// An owner is gone for good after a time, counted from when it was first missed.
func TestGone(t *testing.T) {
	w := newNetwork(t, func(c *Config) { c.Strategy = placement.LeastPartitions(1, 1) }, "a", "b", "c")
	a := &assigner{current: w.nodes["a"].assigner.current}
	view := func(ids ...lease.NodeID) *lease.View {
		v := new(lease.View)
		for _, id := range ids {
			v.Members = append(v.Members, lease.Member{Record: &lease.Record{Profile: lease.Profile{ID: id}}, State: lease.Active})
		}
		return v
	}
	for _, s := range []struct {
		second int
		here   []lease.NodeID
		gone   bool // b
	}{
		{0, []lease.NodeID{"a", "b", "c"}, false},
		{10, []lease.NodeID{"a", "c"}, false},
		{69, []lease.NodeID{"a", "c"}, false},
		{70, []lease.NodeID{"a", "c"}, true},
		{80, []lease.NodeID{"a", "b", "c"}, false},
		{90, []lease.NodeID{"a", "c"}, false},
	} {
		gone := a.gone(at(1000*s.second), view(s.here...), time.Minute)
		if gone("b") != s.gone || gone("a") || gone("unknown") {
			t.Errorf("after %d s: b is gone: %v", s.second, gone("b"))
		}
	}
}

// An older assignment counts if its writer is here, also if the writer was an earlier process of
// this node. The assignment of an unknown node does not count.
func TestOlderAssignment(t *testing.T) {
	for voter, counts := range map[lease.NodeID]bool{"a": true, "b": true, "x": false} {
		w := newNetwork(t, func(c *Config) {
			c.Strategy = placement.LeastPartitions(1, 3)
			c.Self.Incarnation += 100
		}, "a", "b")
		b := w.nodes["b"]
		table, err := placement.Compute(placement.Input{
			Partitions: 8, Strategy: b.cfg.Strategy, Nodes: []placement.Node{{ID: voter, Weight: 100}},
		})
		if err != nil {
			t.Fatal(err)
		}
		older := assignment.Record(table, assignment.Coordinator{ID: voter, Since: 1, Voters: []lease.NodeID{voter}, Active: 1})
		if before := b.assigner.current; !before.ReplacedBy(older) {
			t.Fatal("the other assignment is not older")
		}
		b.assigner.merge(w.now, older.Encode())
		if got := b.assigner.current.Digest() == older.Digest(); got != counts {
			t.Errorf("written by %s: it counts: %v", voter, got)
		}
	}
}
