package events_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

func TestOwned(t *testing.T) {
	tests := map[string]struct {
		step step
		want []placement.Partition
	}{
		"no table":         {step{}, nil},
		"no owners":        {step{owners: "..."}, nil},
		"some":             {step{owners: "abab"}, []placement.Partition{0, 2}},
		"all":              {step{owners: "aa"}, []placement.Partition{0, 1}},
		"none of them":     {step{owners: "bcb"}, nil},
		"fenced":           {step{owners: "abab", fenced: true}, nil},
		"fenced, no table": {step{fenced: true}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc.step.next(t, nil)
			if diff := cmp.Diff(tc.want, s.Owned()); diff != "" {
				t.Errorf("Owned (-want +got):\n%s", diff)
			}
			for p := range placement.Partition(6) {
				if got, want := s.Owns(p), slices.Contains(tc.want, p); got != want {
					t.Errorf("Owns(%d) = %v, want %v", p, got, want)
				}
			}
			if s.Owns(1<<32 - 1) {
				t.Error("owns a partition that does not exist")
			}
			if got, want := s.Digest(), s.Table.Digest(); got != want {
				t.Errorf("Digest = %x, want the table's, %x", got, want)
			}
		})
	}
}

// TestNextCarriesOwnershipOver: an ownership that continues keeps its version, whatever else changes. If it ended even
// for a single state, the next ownership gets a new version.
func TestNextCarriesOwnershipOver(t *testing.T) {
	states := chain(t,
		step{owners: "aab", members: "a1"},       // 1: acquires 0 and 1
		step{owners: "aab", members: "a1 b1"},    // another member
		step{owners: "aab", members: "a1 b1"},    // a refresh
		step{owners: "aba", members: "a1 b1"},    // 4: loses 1, acquires 2
		step{owners: "aaa", members: "a1 b1"},    // 5: regains 1
		step{owners: "aaa", fenced: true},        // 6: loses everything
		step{owners: "aaa"},                      // 7: regains everything
		step{owners: ""},                         // 8: no table
		step{owners: "baa"},                      // 9
		step{owners: "bbb"},                      // 10
		step{owners: "..."},                      // 11
		step{owners: "aabaab"},                   // 12: twice the partitions
		step{owners: "a"},                        // 13: fewer
		step{owners: "aa", fenced: true},         // 14
		step{owners: "aa", members: "a2 c1 b14"}, // 15: unsorted members
	)
	want := [][]uint64{
		{1, 1, 0},
		{1, 1, 0},
		{1, 1, 0},
		{1, 0, 4},
		{1, 5, 4},
		{0, 0, 0},
		{7, 7, 7},
		{0, 0, 0},
		{0, 9, 9},
		{0, 0, 0},
		{0, 0, 0},
		{12, 12, 0, 12, 12, 0},
		{12, 0},
		{0, 0},
		{15, 15},
	}
	for i, s := range states {
		for p, since := range want[i] {
			if got := s.SinceOf(placement.Partition(p)); got != since {
				t.Errorf("state %d, partition %d: since %d, want %d", i+1, p, got, since)
			}
		}
	}
	last := states[len(states)-1].Members
	if want := membersOf(t, "a2 b14 c1"); !slices.Equal(last, want) {
		t.Errorf("members %v, want them sorted: %v", last, want)
	}
}

// TestNextLeavesPrevAlone: a state is immutable, so its successor must not change it.
func TestNextLeavesPrevAlone(t *testing.T) {
	prev := step{owners: "aab", members: "a1"}.next(t, nil)
	before := slices.Clone(prev.Since())
	step{owners: "bba", members: "a1 b1"}.next(t, prev)
	if !slices.Equal(prev.Since(), before) || len(prev.Members) != 1 || prev.Version != 1 {
		t.Errorf("changed: since %v → %v, members %v, version %d", before, prev.Since(), prev.Members, prev.Version)
	}
}

// TestNextOfAnotherSelf: if self changes, the new state belongs to another node and does not continue the ownerships of
// the former node.
func TestNextOfAnotherSelf(t *testing.T) {
	table := tableOf(t, "ab")
	a := events.Next(nil, "a", table, nil, true)
	b := events.Next(a, "b", table, nil, true)
	if got := b.SinceOf(1); b.Owns(0) || got != 2 {
		t.Errorf("b owns 0: %v, want false; owns 1 since %d, want 2", b.Owns(0), got)
	}
}

// TestMayOwn: MayOwn keeps its version as long as the node may own partitions without an interruption, even if it owns
// none.
func TestMayOwn(t *testing.T) {
	states := chain(t,
		step{owners: "bb", fenced: true},
		step{owners: "bb"}, // 2
		step{owners: "ab"},
		step{owners: "ab", fenced: true},
		step{owners: "ab"}, // 5
		step{owners: "ab", members: "a1 b1"},
	)
	for i, want := range []uint64{0, 2, 2, 0, 5, 5} {
		if got := states[i].MayOwn; got != want {
			t.Errorf("state %d: MayOwn = %d, want %d", i+1, got, want)
		}
	}
}
