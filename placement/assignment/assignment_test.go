package assignment_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// anyHistory draws an assignment that a coordinator has developed from base: nodes join and leave, some of them
// permanently, and the coordinator makes passes. Without a base, since is the coordinator's start time in the genesis.
func anyHistory(base *assignment.Assignment, by lease.NodeID, since uint64) *rapid.Generator[*assignment.Assignment] {
	return rapid.Custom(func(t *rapid.T) *assignment.Assignment {
		m := &run{t: t, strategy: placement.LeastPartitions(1, 3), partitions: 20, assigned: base}
		all := equals("a", "b", "c", "d", "e")
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			here := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 5, func(n placement.Node) lease.NodeID { return n.ID }).Draw(t, "nodes")
			m.compute(here...)
			gone := rapid.SampledFrom([]lease.NodeID{"", "a", "e"}).Draw(t, "gone")
			c := assignment.Coordinator{ID: by, Since: since, Gone: func(id lease.NodeID) bool { return id == gone }}
			for _, n := range m.table.Nodes() {
				c.Voters, c.Active = append(c.Voters, n.ID), c.Active+1
			}
			m.assigned = assignment.Record(m.table, c)
			m.compute(here...)
			if rapid.Bool().Draw(t, "pass") {
				m.assigned = level(t, m.table, c, m.assigned.Version(), rapid.Bool().Draw(t, "unlimited"))
			}
		}
		return m.assigned
	})
}

func merge(t rapid.TB, all ...*assignment.Assignment) *assignment.Assignment {
	t.Helper()
	merged := all[0]
	for _, a := range all[1:] {
		var err error
		if merged, err = merged.Merge(a); err != nil {
			t.Fatal(err)
		}
	}
	return merged
}

// Nodes receive the assignments of several coordinators, in any order and any number of times. They all end with the
// same assignment.
func TestMergeConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := anyHistory(nil, "x", 5).Draw(t, "base")
		a := anyHistory(base, "x", 5).Draw(t, "a")
		b := anyHistory(base, "y", 6).Draw(t, "b")
		c := anyHistory(nil, "z", rapid.Uint64Range(4, 6).Draw(t, "since")).Draw(t, "c") // began apart
		want := merge(t, a, b, c)
		for name, got := range map[string]*assignment.Assignment{
			"c b a": merge(t, c, b, a), "b (c a)": merge(t, b, merge(t, c, a)),
			"again": merge(t, want, a, b, c, base), "nil first": merge(t, nil, b, a, c, nil),
		} {
			if got.Digest() != want.Digest() || !bytes.Equal(got.Encode(), want.Encode()) {
				t.Errorf("%s ends differently", name)
			}
		}
		if want.Version() != max(a.Version(), b.Version(), c.Version()) {
			t.Errorf("version %d of %d, %d, %d", want.Version(), a.Version(), b.Version(), c.Version())
		}
		if merge(t, a, base).Digest() != a.Digest() {
			t.Error("an earlier version changes a later one")
		}
	})
}

// While the coordinator changes, two nodes may be coordinators at the same time. If they see the same members, both
// move the same partitions, so their merged assignment does not move twice as many.
func TestMergeOfOneView(t *testing.T) {
	deal := slices.Concat(slices.Repeat([]lease.NodeID{"a"}, 12), slices.Repeat([]lease.NodeID{"b"}, 12))
	m := held(t, placement.LeastPartitions(1, 4), deal, "a", "b")
	m.change(equals("a", "b", "c", "d")...)
	m.assigned = merge(t, level(t, m.table, assignment.Coordinator{ID: "a"}, 99, false),
		level(t, m.table, assignment.Coordinator{ID: "b"}, 99, false))
	m.compute(m.table.Nodes()...)
	if got := counts(m.table); !slices.Equal(got, []int{10, 10, 2, 2}) {
		t.Errorf("after four moves counts are %v", got)
	}
}

// If two coordinators see different members, the merged assignment keeps the changes of both. If both changed a
// partition, only one change is kept.
func TestMergeOfTwoViews(t *testing.T) {
	m := held(t, placement.LeastPartitions(1, 2), slices.Repeat([]lease.NodeID{"a", "b"}, 12), "a", "b")
	one, other := *m, *m
	one.change(equals("a", "b", "c", "d")...)
	one.pass() // partitions 0 and 1 go to c and d
	other.change(equals("b", "c", "d")...)
	m.assigned = merge(t, one.assigned, other.assigned)
	m.compute(equals("b", "c", "d")...)
	moves, deputies := owners(one.table), owners(other.table)
	for p, got := range owners(m.table) {
		want := deputies[p]
		if p < 2 {
			want = moves[p]
		}
		if got != want {
			t.Errorf("partition %d is at %s, want %s", p, got, want)
		}
	}
}

// A merged assignment has at least the version of both assignments. Otherwise a newer assignment could look older, and
// no node would fetch it.
func TestMergeKeepsVersion(t *testing.T) {
	m := newRun(t, placement.LeastPartitions(1, 1), 1, equals("a")...)
	one, other := *m, *m
	one.compute(equals("b")...)
	all := func(lease.NodeID) bool { return true }
	winner := assignment.Record(one.table, assignment.Coordinator{ID: "b", Gone: all}) // owner b, version 2
	other.change(equals("b")...)
	other.change(equals("c")...) // deputy c, version 3
	for _, merged := range []*assignment.Assignment{merge(t, winner, other.assigned), merge(t, other.assigned, winner)} {
		if merged.Version() != 3 || !slices.Equal(merged.Owners(), []lease.NodeID{"b"}) {
			t.Errorf("version %d, owners %v, want 3 and b", merged.Version(), merged.Owners())
		}
	}
}

// At most one side of a split may write.
func TestQuorum(t *testing.T) {
	four := recorded(t, 3, assignment.Coordinator{ID: "a", Voters: []lease.NodeID{"a", "b", "c", "d"}, Active: 4}, equals("a")...)
	for _, tt := range []struct {
		members string
		want    bool
	}{
		{"abcd", true},
		{"bcd", true},
		{"ab", true},
		{"ad", true},
		{"cd", false},
		{"bc", false},
		{"a", false},
		{"d", false},
		{"wxyz", true},
		{"cdyz", true},
		{"cdz", false},
		{"xyz", false},
		{"bcdxyz", true},
		{"", false},
	} {
		var members []lease.NodeID
		for _, r := range tt.members {
			members = append(members, lease.NodeID(r))
		}
		if got := four.Quorum(members); got != tt.want {
			t.Errorf("of abcd, %q may write: %v", tt.members, got)
		}
	}
	// A node that has just left counts as a voter, but not as an active member.
	two := recorded(t, 3, assignment.Coordinator{ID: "a", Voters: []lease.NodeID{"a", "b", "c", "d"}, Active: 2}, equals("a")...)
	if !two.Quorum([]lease.NodeID{"c", "d"}) || two.Quorum([]lease.NodeID{"d"}) {
		t.Error("as many members as were active may write, and no fewer")
	}
	if !(*assignment.Assignment)(nil).Quorum(nil) {
		t.Error("no node may write the first version")
	}
}

func TestMergeRefusesOtherPartitions(t *testing.T) {
	a := recorded(t, 8, assignment.Coordinator{ID: "a"}, equals("a")...)
	b := recorded(t, 9, assignment.Coordinator{ID: "a"}, equals("a")...)
	if got, err := a.Merge(b); err == nil || got != a {
		t.Errorf("merged into %v, %v", got, err)
	}
	in := placement.Input{Nodes: equals("a"), Partitions: 9, Strategy: placement.LeastPartitions(1, 3), Memory: a}
	if _, err := placement.Compute(in); err == nil || !strings.Contains(err.Error(), "the memory counts 8 partitions") {
		t.Errorf("computed with it: %v", err)
	}
}

// Why has a reason for every kind of change.
func TestWhy(t *testing.T) {
	nodes := equals("a", "b", "c")
	m := &run{t: t, strategy: placement.LeastPartitions(1, 2), partitions: 8}
	expect := func(want string) {
		t.Helper()
		if got := m.table.Why(0); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	m.compute(nodes[0])
	expect("it had no owner on record, and a had the fewest partitions")
	m.change(nodes[0])
	expect("it had no owner, and the strategy chose a; boss recorded that in version 1 of the assignment")
	m.change(nodes[:2]...)
	m.pass()
	expect("boss moved it from a to b, to even out the load, in version 2 of the assignment")
	m.compute(nodes[0])
	expect("its owner b is away or drains, and a takes over")
	m.change(nodes[0])
	expect("a stands in, since version 3 of the assignment, for its owner b, which is away or drains")
	m.assigned = assignment.Record(m.table, assignment.Coordinator{ID: "boss", Gone: func(id lease.NodeID) bool { return id == "b" }})
	m.compute(nodes[0])
	expect("a stood in for b, which did not come back; boss made it the owner in version 4 of the assignment")
}
