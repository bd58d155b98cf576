package node

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// There is a pause between exchanges. An exchange for the same assignment is not repeated immediately, and at most
// three exchanges run at once.
func TestFetch(t *testing.T) {
	type step struct {
		ms     int
		digest placement.Digest
		done   int // exchanges that end before this step
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

// An owner loses its partitions permanently some time after it was first missed.
func TestGone(t *testing.T) {
	table, err := placement.Compute(placement.Input{
		Partitions: 8, Strategy: placement.LeastPartitions(1, 1),
		Nodes: []placement.Node{{ID: "a", Weight: 100}, {ID: "b", Weight: 100}, {ID: "c", Weight: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	voters := []lease.NodeID{"a", "b", "c"}
	a := &assigner{current: assignment.Record(table, assignment.Coordinator{ID: "a", Since: 1, Voters: voters, Active: 3})}
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
		gone   bool // whether b is gone
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
