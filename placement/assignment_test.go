package placement_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// anyHistory draws an assignment that some coordinator wrote, going on from base:
// nodes come and go, for good or not, and passes are made. since is when the
// coordinator was started, which counts where there is no base.
func anyHistory(base *placement.Assignment, by lease.NodeID, since uint64) *rapid.Generator[*placement.Assignment] {
	return rapid.Custom(func(t *rapid.T) *placement.Assignment {
		m := &memory{t: t, strategy: placement.LeastPartitions(1, 3), partitions: 20, assigned: base}
		all := equals("a", "b", "c", "d", "e")
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			here := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 5, func(n placement.Node) lease.NodeID { return n.ID }).Draw(t, "nodes")
			m.compute(here...)
			gone := rapid.SampledFrom([]lease.NodeID{"", "a", "e"}).Draw(t, "gone")
			c := placement.Coordinator{ID: by, Since: since, Gone: func(id lease.NodeID) bool { return id == gone }}
			for _, n := range m.table.Nodes() {
				c.Voters, c.Active = append(c.Voters, n.ID), c.Active+1
			}
			m.assigned = m.table.Record(c)
			m.compute(here...)
			if rapid.Bool().Draw(t, "pass") {
				m.assigned = m.table.Level(c, m.assigned.Version(), rapid.Bool().Draw(t, "unlimited"))
			}
		}
		return m.assigned
	})
}

func merge(t fataler, all ...*placement.Assignment) *placement.Assignment {
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

// S2.4: in whatever order nodes hear of what coordinators wrote apart, and however
// often, they end with the same.
func TestMergeConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := anyHistory(nil, "x", 5).Draw(t, "base")
		a := anyHistory(base, "x", 5).Draw(t, "a")
		b := anyHistory(base, "y", 6).Draw(t, "b")
		c := anyHistory(nil, "z", rapid.Uint64Range(4, 6).Draw(t, "since")).Draw(t, "c") // began apart
		want := merge(t, a, b, c)
		for name, got := range map[string]*placement.Assignment{
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
			t.Error("what was before changes what came after it")
		}
	})
}

// S2.4: two coordinators at once, during a change-over. With one view they move
// the same partitions, not twice as many.
func TestMergeOfOneView(t *testing.T) {
	deal := slices.Concat(slices.Repeat([]lease.NodeID{"a"}, 12), slices.Repeat([]lease.NodeID{"b"}, 12))
	m := held(t, placement.LeastPartitions(1, 4), deal, "a", "b")
	m.change(equals("a", "b", "c", "d")...)
	m.assigned = merge(t, m.table.Level(placement.Coordinator{ID: "a"}, 99, false), m.table.Level(placement.Coordinator{ID: "b"}, 99, false))
	m.compute(m.table.Nodes()...)
	if got := counts(m.table); !slices.Equal(got, []int{10, 10, 2, 2}) {
		t.Errorf("after four moves counts are %v", got)
	}
}

// With different views, each one's work stays but where they disagree.
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

// The merged version is never lower than either. Else the one that has more to
// tell could look like the older one, and would not be asked.
func TestMergeKeepsVersion(t *testing.T) {
	m := newMemory(t, placement.LeastPartitions(1, 1), 1, equals("a")...)
	one, other := *m, *m
	one.compute(equals("b")...)
	winner := one.table.Record(placement.Coordinator{ID: "b", Gone: func(lease.NodeID) bool { return true }}) // owner b, version 2
	other.change(equals("b")...)
	other.change(equals("c")...) // deputy c, version 3
	for _, merged := range []*placement.Assignment{merge(t, winner, other.assigned), merge(t, other.assigned, winner)} {
		if merged.Version() != 3 || !slices.Equal(merged.Owners(), []lease.NodeID{"b"}) {
			t.Errorf("version %d, owners %v, want 3 and b", merged.Version(), merged.Owners())
		}
	}
}

// A version that no cluster can reach is not believed: after it there would be no
// other, and nobody could write any more.
func TestMergeRefusesTheFarFuture(t *testing.T) {
	a := mustCompute(t, 3, equals("a")...).Record(placement.Coordinator{ID: "a"})
	future := binary.AppendUvarint([]byte{1, 3}, 1<<53)
	b, err := placement.DecodeAssignment(append(future, 1, 1, 'b', 0, 1, 0, 0, 0, 0, 0, 0), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Merge(b); err == nil || got != a {
		t.Errorf("merged into version %d, %v", got.Version(), err)
	}
	in := placement.Input{Nodes: equals("a", "b"), Partitions: 3, Strategy: placement.LeastPartitions(1, 3), Assigned: b}
	table, err := placement.Compute(in) // by one who knew nothing else
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Record(placement.Coordinator{ID: "a"}); got != b {
		t.Errorf("version %d follows the last one", got.Version())
	}
}

// S2.4: who may write, so that no two sides of a split do.
func TestQuorum(t *testing.T) {
	four := mustCompute(t, 3, equals("a")...).Record(placement.Coordinator{ID: "a", Voters: []lease.NodeID{"a", "b", "c", "d"}, Active: 4})
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
	// Voters that have just gone count as voters, and not as active.
	two := mustCompute(t, 3, equals("a")...).Record(placement.Coordinator{ID: "a", Voters: []lease.NodeID{"a", "b", "c", "d"}, Active: 2})
	if !two.Quorum([]lease.NodeID{"c", "d"}) || two.Quorum([]lease.NodeID{"d"}) {
		t.Error("as many as were active may write, and no fewer")
	}
	if !(*placement.Assignment)(nil).Quorum(nil) {
		t.Error("nobody may write the first assignment")
	}
}

func TestMergeRefusesOtherPartitions(t *testing.T) {
	a := mustCompute(t, 8, equals("a")...).Record(placement.Coordinator{ID: "a"})
	b := mustCompute(t, 9, equals("a")...).Record(placement.Coordinator{ID: "a"})
	if got, err := a.Merge(b); err == nil || got != a {
		t.Errorf("merged into %v, %v", got, err)
	}
	in := placement.Input{Nodes: equals("a"), Partitions: 9, Strategy: placement.LeastPartitions(1, 3), Assigned: a}
	if _, err := placement.Compute(in); err == nil || !strings.Contains(err.Error(), "an assignment of 8 partitions for a table of 9") {
		t.Errorf("computed with it: %v", err)
	}
}

func TestAssignmentWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyHistory(nil, "x", 5).Draw(t, "a")
		b := a.Encode()
		back, err := placement.DecodeAssignment(b, 20)
		if err != nil || back.Digest() != a.Digest() || back.Version() != a.Version() {
			t.Fatalf("%d bytes are read back as version %d, %s: %v", len(b), back.Version(), back.Digest(), err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := placement.DecodeAssignment(b[:cut], 20); !errors.Is(err, placement.ErrAssignment) {
			t.Errorf("cut to %d of %d bytes: %v", cut, len(b), err)
		}
		if _, err := placement.DecodeAssignment(append(b, 0), 20); !errors.Is(err, placement.ErrAssignment) {
			t.Errorf("a byte too many: %v", err)
		}
		if _, err := placement.DecodeAssignment(b, 21); !errors.Is(err, placement.ErrAssignment) {
			t.Errorf("another number of partitions: %v", err)
		}
	})
	size := len(mustCompute(t, 1024, fleet(1, 100)...).Record(placement.Coordinator{ID: "boss"}).Encode())
	if size > 12*1024 {
		t.Errorf("1,024 partitions take %d bytes", size)
	}
}

func FuzzDecodeAssignment(f *testing.F) {
	f.Add(mustCompute(f, 3, equals("a", "b")...).Record(placement.Coordinator{ID: "a"}).Encode())
	last := binary.AppendUvarint([]byte{1, 3}, 1<<53)      // the last version that there is
	f.Add(append(last, 1, 1, 'b', 0, 1, 0, 0, 0, 0, 0, 0)) // one id, who began it, nobody there, three times nobody
	f.Add([]byte{1, 3, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := placement.DecodeAssignment(b, 3)
		if err != nil {
			if !errors.Is(err, placement.ErrAssignment) || a != nil {
				t.Errorf("%v, %v", a, err)
			}
			return
		}
		again, err := placement.DecodeAssignment(a.Encode(), 3)
		if err != nil || again.Digest() != a.Digest() {
			t.Errorf("read back as %s instead of %s: %v", again.Digest(), a.Digest(), err)
		}
		for _, id := range a.Owners() {
			if err := id.Validate(); err != nil {
				t.Error(err)
			}
		}
		// Whatever it says, a table can be made of it.
		in := placement.Input{Nodes: equals("a", "b"), Partitions: 3, Strategy: placement.LeastPartitions(1, 3), Assigned: a}
		table, err := placement.Compute(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range []*placement.Assignment{
			table.Level(placement.Coordinator{ID: "a"}, a.Version(), false), table.Record(placement.Coordinator{ID: "a"}),
		} { // and others can read what is written next
			if _, err := placement.DecodeAssignment(next.Encode(), 3); err != nil {
				t.Error(err)
			}
		}
		_ = table.Why(0)
	})
}

// Every node can say why a partition is where it is, for every strategy.
func TestWhy(t *testing.T) { // S2.4
	nodes := equals("a", "b", "c")
	for _, tt := range []struct {
		table *placement.Table
		want  string
	}{
		{mustCompute(t, 8, nodes...), "drew the best number of 3 nodes for it; without it, "},
		{mustCompute(t, 8, nodes[0]), "a is the only node that may own anything"},
		{mustComputeBy(t, placement.Zoned(placement.Modulo()), 8, nodes...), "5 mod 3 nodes is 2, and c has this place"},
		{mustComputeBy(t, placement.Bounded(125), 8, nodes...), "had room"},
		{mustComputeBy(t, placement.VnodeRing(), 8, nodes...), "on the ring of 3 nodes, the first point at or after its hash is one of "},
		{mustComputeBy(t, byTurns{}, 8, nodes...), "the strategy by-turns placed it on c"},
		{mustCompute(t, 5, nodes...), "there is no partition 5: they are numbered from 0 to 4"},
		{mustCompute(t, 8), "there is no node that may own anything"},
		{nil, "there is no partition 5"},
	} {
		if got := tt.table.Why(5); !strings.Contains(got, tt.want) {
			t.Errorf("%q, want … %s", got, tt.want)
		}
	}
	least := &memory{t: t, strategy: placement.LeastPartitions(1, 2), partitions: 8}
	expect := func(want string) {
		t.Helper()
		if got := least.table.Why(0); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	least.compute(nodes[0])
	expect("nobody was assigned it yet, and a had the fewest partitions")
	least.change(nodes[0])
	expect("a had the fewest partitions when it was dealt out; boss wrote that down in version 1 of the assignment")
	least.change(nodes[:2]...)
	least.pass()
	expect("boss moved it from a, which had the most partitions, to b, which had the fewest, in version 2 of the assignment")
	least.compute(nodes[0])
	expect("its owner b is away or drains, and a had the fewest partitions")
	least.change(nodes[0])
	expect("a stands in, since version 3 of the assignment, for its owner b, which is away or drains")
	least.assigned = least.table.Record(placement.Coordinator{ID: "boss", Gone: func(id lease.NodeID) bool { return id == "b" }})
	least.compute(nodes[0])
	expect("a stood in for b, which did not come back; boss made it the owner in version 4 of the assignment")
}
