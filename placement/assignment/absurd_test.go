package assignment_test

import (
	"errors"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// at returns an assignment with the given version and three partitions without owners.
func at(t *testing.T, version uint64) *assignment.Assignment {
	t.Helper()
	a, err := assignment.Decode(encoded(1, 3, version, []string{"b"}, 0, 1, 0, 0, []int{}, []any{nil, nil, nil}), 3)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// If the versions of two assignments are impossibly far apart, nodes keep the lower version. No node accepts a first
// version that is so high that the node could no longer write.
func TestMergeFarApart(t *testing.T) {
	const far = 1 << 32
	for _, tc := range []struct {
		have, received, want uint64
		fails                bool
	}{
		{7, 7 + far, 7 + far, false},
		{7, 7 + far + 1, 7, true},
		{7 + far, 7, 7 + far, false},
		{7 + far + 1, 7, 7, false},
		{0, 1 << 52, 1 << 52, false},
		{0, 1<<52 + 1, 0, true},
	} {
		var a *assignment.Assignment
		if tc.have > 0 {
			a = at(t, tc.have)
		}
		got, err := a.Merge(at(t, tc.received))
		if got.Version() != tc.want || (tc.fails && got != a) || (err != nil) != tc.fails {
			t.Errorf("%d and %d: %d, %v", tc.have, tc.received, got.Version(), err)
		}
	}
}

// No node can write after the last possible version, which a node without an assignment may receive.
func TestRecordAfterTheLastVersion(t *testing.T) {
	last := at(t, 1<<53)
	table := mustCompute(t, placement.Input{Nodes: equals("a", "b"), Partitions: 3, Strategy: placement.LeastPartitions(1, 3), Memory: last})
	if got := assignment.Record(table, assignment.Coordinator{ID: "a"}); got != last {
		t.Errorf("version %d follows the last one", got.Version())
	}
}

// Decode rejects an assignment with more active nodes than voters.
func TestDecodeRefusesQuorum(t *testing.T) {
	for active, ok := range map[int]bool{0: true, 2: true, 3: false, lease.MaxNodes: false, -1: false} {
		a := recorded(t, 3, assignment.Coordinator{ID: "a", Voters: []lease.NodeID{"a", "b"}, Active: active}, equals("a", "b")...)
		if _, err := assignment.Decode(a.Encode(), 3); (err == nil) != ok || (err != nil && !errors.Is(err, assignment.ErrMalformed)) {
			t.Errorf("%d active of 2 voters: %v", active, err)
		}
	}
}
