package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// memory is a cluster's table and assignment, without the cluster.
type memory struct {
	t          fataler
	strategy   placement.Strategy
	partitions int
	assigned   *placement.Assignment
	table      *placement.Table
}

func newMemory(t fataler, s placement.Strategy, partitions int, nodes ...placement.Node) *memory {
	t.Helper()
	m := &memory{t: t, strategy: s, partitions: partitions}
	m.change(nodes...)
	return m
}

// change is a change of nodes, noted by the coordinator.
func (m *memory) change(nodes ...placement.Node) {
	m.t.Helper()
	m.compute(nodes...)
	m.assigned = m.table.Record(placement.Coordinator{ID: "boss"})
	before := owners(m.table)
	m.compute(nodes...)
	if got := owners(m.table); !slices.Equal(got, before) {
		m.t.Fatal("to write the table down changed it:", before, got)
	}
}

func (m *memory) compute(nodes ...placement.Node) {
	m.t.Helper()
	var err error
	m.table, err = placement.Compute(placement.Input{
		Nodes: nodes, Partitions: m.partitions, Strategy: m.strategy, Assigned: m.assigned,
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// pass makes a pass and returns how many partitions it moved.
func (m *memory) pass() int {
	m.t.Helper()
	before := owners(m.table)
	m.assigned = m.table.Level(placement.Coordinator{ID: "boss"}, m.assigned.Version(), false)
	m.compute(m.table.Nodes()...)
	return moved(before, owners(m.table))
}

// level makes passes until one moves nothing, and returns what each one moved.
func (m *memory) level() (moves []int) {
	m.t.Helper()
	for range 10 * m.partitions {
		n := m.pass()
		if n == 0 {
			return moves
		}
		moves = append(moves, n)
	}
	m.t.Fatal("it never rests", m.table.Balance().Counts)
	return nil
}

func moved(before, after []lease.NodeID) (n int) {
	for p := range before {
		if before[p] != after[p] {
			n++
		}
	}
	return n
}

func counts(t *placement.Table) (c []int) {
	for _, n := range t.Nodes() {
		c = append(c, len(t.Owned(n.ID)))
	}
	return c
}

// S2.6: the golden vectors.
func TestLeastVectors(t *testing.T) {
	for _, tt := range []struct{ from, to, moves []int }{
		{[]int{1, 2, 0}, []int{1, 1, 1}, []int{1}},
		{[]int{2, 0, 0}, []int{1, 1, 0}, []int{1}},
		{[]int{1, 1, 0}, []int{1, 1, 0}, nil},
		{[]int{9, 0, 0}, []int{3, 3, 3}, []int{6}}, // no limit: in one pass
	} {
		partitions := 0
		var deal []lease.NodeID
		for i, n := range tt.from {
			partitions += n
			for range n {
				deal = append(deal, lease.NodeID(fmt.Sprint("node-", i)))
			}
		}
		m := held(t, placement.LeastPartitions(1, 0), deal, "node-0", "node-1", "node-2")
		if got := counts(m.table); !slices.Equal(got, tt.from) {
			t.Fatalf("counts %v, want to begin with %v", got, tt.from)
		}
		if got := m.level(); !slices.Equal(got, tt.moves) || !slices.Equal(counts(m.table), tt.to) {
			t.Errorf("%v: passes moved %v and led to %v, want %v and %v", tt.from, got, counts(m.table), tt.moves, tt.to)
		}
	}
}

// held returns the memory of a cluster in which the partitions were dealt so.
func held(t fataler, s placement.Strategy, deal []lease.NodeID, ids ...lease.NodeID) *memory {
	t.Helper()
	nodes := equals(ids...)
	var at []int
	for _, id := range deal {
		at = append(at, slices.Index(ids, id))
	}
	dealt := mustComputeBy(t, fixed{name: "dealt", assign: at}, len(deal), nodes...)
	m := &memory{t: t, strategy: s, partitions: len(deal), assigned: dealt.Record(placement.Coordinator{ID: "boss"})}
	m.compute(nodes...)
	return m
}

// S2.3: with a threshold of 1 it rests although P mod n ≠ 0, never more than
// maxMoves move at once, from the fullest node to the emptiest.
func TestLeastLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.IntRange(1, 4).Draw(t, "threshold")
		maxMoves := rapid.IntRange(0, 5).Draw(t, "max moves")
		nodes := anyNodes(1, 8).Draw(t, "nodes")
		for i := range nodes {
			nodes[i].Weight = min(nodes[i].Weight, 1000)
		}
		partitions := anyPartitions().Draw(t, "partitions")
		some := nodes[:rapid.IntRange(1, len(nodes)).Draw(t, "nodes at first")]
		m := newMemory(t, placement.LeastPartitions(threshold, maxMoves), partitions, some...)
		m.change(nodes...)
		for _, n := range m.level() {
			if maxMoves > 0 && n > maxMoves {
				t.Errorf("%d partitions moved in one pass, at most %d", n, maxMoves)
			}
		}
		// The twin of the measure: distances from fair shares, in floating point.
		var least, most, total float64
		for _, n := range m.table.Nodes() {
			total += float64(n.Weight)
		}
		for i, n := range m.table.Nodes() {
			surplus := float64(len(m.table.Owned(n.ID))) - float64(partitions)*float64(n.Weight)/total
			if i == 0 {
				least, most = surplus, surplus
			}
			least, most = min(least, surplus), max(most, surplus)
		}
		if most-least > float64(threshold)+1e-6 {
			t.Errorf("rests while %.2f partitions apart, threshold %d: %v", most-least, threshold, counts(m.table))
		}
	})
}

// plainKeep deals as one would tell it: each partition that has nobody goes to
// whoever is furthest below its share, the first of equal ones.
func plainKeep(before []lease.NodeID, nodes []placement.Node) []lease.NodeID {
	has := make(map[lease.NodeID]int64)
	var total int64
	for _, n := range nodes {
		has[n.ID] = 0
		total += int64(n.Weight)
	}
	after := slices.Clone(before)
	for p, id := range before {
		if _, there := has[id]; there {
			has[id]++
		} else {
			after[p] = ""
		}
	}
	for p := range after {
		if after[p] != "" {
			continue
		}
		var best placement.Node
		for _, n := range nodes {
			// More missing than the best so far?
			if best.ID == "" || int64(len(before))*int64(n.Weight)-has[n.ID]*total > int64(len(before))*int64(best.Weight)-has[best.ID]*total {
				best = n
			}
		}
		after[p] = best.ID
		has[best.ID]++
	}
	return after
}

// S2.3: a node that leaves gives its partitions to those with the fewest, and
// nothing else moves; when it comes back it has what it had.
func TestLeastLeaveAndReturn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(2, 8).Draw(t, "nodes")
		slices.SortFunc(nodes, func(a, b placement.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
		m := newMemory(t, placement.LeastPartitions(1, 3), anyPartitions().Draw(t, "partitions"), nodes...)
		if got, want := owners(m.table), plainKeep(make([]lease.NodeID, m.partitions), nodes); !slices.Equal(got, want) {
			t.Errorf("dealt %v, want %v", got, want)
		}
		for range rapid.IntRange(0, 3).Draw(t, "passes") {
			m.pass()
		}
		before := owners(m.table)
		leaver := rapid.SampledFrom(nodes).Draw(t, "leaver").ID
		m.change(without(nodes, leaver)...)
		if got, want := owners(m.table), plainKeep(before, without(nodes, leaver)); !slices.Equal(got, want) {
			t.Errorf("%s left: %v, want %v", leaver, got, want)
		}
		m.change(nodes...)
		if got := owners(m.table); !slices.Equal(got, before) {
			t.Errorf("%s came back: %v, want %v", leaver, got, before)
		}
	})
}

// What is on record does not move when yet another node goes: without deputies,
// the partitions of the first would be dealt out anew.
func TestLeastDeputiesStay(t *testing.T) {
	nodes := equals("a", "b", "c", "d", "e")
	m := newMemory(t, placement.LeastPartitions(1, 3), 100, nodes...)
	m.change(without(nodes, "a")...)
	before := owners(m.table)
	m.change(without(nodes, "a", "c")...)
	for p, id := range owners(m.table) {
		if before[p] != id && before[p] != "c" {
			t.Errorf("partition %d went from %s to %s when c left", p, before[p], id)
		}
	}
}

// A node that was alone believes that it has everything. It takes away nothing
// when it is back, however often it wrote that down.
func TestLeastAloneTakesNothing(t *testing.T) {
	nodes := equals("a", "b", "c")
	m := newMemory(t, placement.LeastPartitions(1, 3), 30, nodes...)
	before := owners(m.table)
	alone := *m
	alone.change(nodes[0])
	alone.pass()
	if got := counts(alone.table); !slices.Equal(got, []int{30}) {
		t.Fatalf("alone it has %v", got)
	}
	m.change(nodes[1:]...)
	merged, err := m.assigned.Merge(alone.assigned)
	if err != nil {
		t.Fatal(err)
	}
	m.assigned = merged
	m.compute(nodes...)
	if got := owners(m.table); !slices.Equal(got, before) {
		t.Errorf("after the heal %v, want what was before the split, %v", got, before)
	}
}

// One that began alone, because it found nobody, takes away nothing either, however
// much it has written.
func TestLeastBeganAlone(t *testing.T) {
	m := newMemory(t, placement.LeastPartitions(1, 3), 30, equals("a", "b")...)
	before := owners(m.table)
	for _, id := range []lease.NodeID{"0", "z"} {
		alone := mustComputeBy(t, m.strategy, 30, equals(id)...)
		theirs := alone.Record(placement.Coordinator{ID: id, Since: 1})
		for range 5 { // it comes and goes
			m.assigned, theirs = theirs, m.assigned
			m.change(equals(id)...)
			m.change(equals("y")...)
			m.assigned, theirs = theirs, m.assigned
		}
		m.assigned = merge(t, theirs, m.assigned)
		m.compute(equals("a", "b", id)...)
		if got := owners(m.table); !slices.Equal(got, before) {
			t.Errorf("%s came: %v, want %v", id, got, before)
		}
	}
}

// A deputy is one for as long as the owner is away. Of one that stayed on record, a
// death years later would make the heir of everything, however full it is.
func TestLeastDeputyOfThePast(t *testing.T) {
	nodes := equals("a", "b")
	m := newMemory(t, placement.LeastPartitions(1, 0), 100, nodes...)
	m.change(nodes[1])
	m.change(nodes...)
	all := equals("a", "b", "c", "d", "e")
	m.change(all...)
	m.level()
	m.change(all[1:]...)
	if got := counts(m.table); !slices.Equal(got, []int{25, 25, 25, 25}) {
		t.Errorf("a died long after its restart, and left %v", got)
	}
}

// An owner that is gone for good is followed by its deputy, and is a newcomer
// when it comes back.
func TestLeastGone(t *testing.T) {
	nodes := equals("a", "b", "c")
	m := newMemory(t, placement.LeastPartitions(1, 3), 30, nodes...)
	m.change(nodes[1:]...)
	before := owners(m.table)
	m.assigned = m.table.Record(placement.Coordinator{ID: "boss", Gone: func(id lease.NodeID) bool { return id == "a" }})
	m.compute(nodes...)
	if got := owners(m.table); !slices.Equal(got, before) {
		t.Errorf("the deputies' partitions moved: %v, want %v", got, before)
	}
	if got := m.assigned.Owners(); !slices.Equal(got, []lease.NodeID{"b", "c"}) {
		t.Errorf("owners %v", got)
	}
	if got := m.pass(); got != 3 {
		t.Errorf("the first pass gives the newcomer %d, want 3", got)
	}
}

// S2.3: what moved last is still under way and is not moved again.
func TestLeastNeverMovesWhatIsMoving(t *testing.T) {
	m := held(t, placement.LeastPartitions(1, 0), slices.Repeat([]lease.NodeID{"a"}, 10), "a")
	settled := m.assigned.Version()
	m.change(equals("a", "b")...)
	m.pass()
	before := owners(m.table) // five at a, and five at b, which are still moving
	m.change(equals("b", "c", "d")...)
	if got := counts(m.table); !slices.Equal(got, []int{5, 3, 2}) {
		t.Fatalf("counts %v", got)
	}
	m.assigned = m.table.Level(placement.Coordinator{ID: "boss"}, settled, false)
	m.compute(equals("b", "c", "d")...)
	for p, id := range owners(m.table) {
		if before[p] == "b" && id != "b" {
			t.Errorf("partition %d is moving to b, and was moved on to %s", p, id)
		}
	}
}

// While passes are under way, the advice is not to raise Partitions.
func TestLeastAdvice(t *testing.T) { // S4.8
	m := newMemory(t, placement.LeastPartitions(1, 3), 60, equals("a", "b")...)
	m.change(equals("a", "b", "c")...)
	if got := m.table.Balance().Advice(); !strings.Contains(got, "is being evened out") {
		t.Errorf("with a newcomer that has nothing: %q", got)
	}
	m.level()
	if got := m.table.Balance().Advice(); got != "" {
		t.Errorf("when it is even: %q", got)
	}
	m = newMemory(t, placement.LeastPartitions(1, 3), 4, equals("a", "b", "c")...)
	if got := m.table.Balance().Advice(); !strings.Contains(got, "raise Partitions") {
		t.Errorf("with too few partitions: %q", got)
	}
}

func TestLeastBadWeights(t *testing.T) {
	nodes := make([]placement.Node, 10_000)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprint("n", i)), Weight: 1<<32 - 1}
	}
	_, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 65536, Strategy: placement.LeastPartitions(1, 3)})
	if err == nil || !strings.Contains(err.Error(), "use smaller ones") {
		t.Errorf("weights beyond all bounds: %v", err)
	}
}

func TestLeastNames(t *testing.T) {
	for want, s := range map[string]placement.Strategy{
		"least-partitions-1-3":           placement.LeastPartitions(1, 3),
		"least-partitions-1-0":           placement.LeastPartitions(0, -1),
		"least-partitions-5-65536+zones": placement.Zoned(placement.LeastPartitions(5, 1<<30)),
	} {
		if s.Name() != want || !placement.Remembers(s) {
			t.Errorf("%s is called %s and remembers: %v", want, s.Name(), placement.Remembers(s))
		}
	}
	if placement.Remembers(placement.Rendezvous()) {
		t.Error("rendezvous remembers")
	}
}

func ExampleLeastPartitions() {
	in := placement.Input{
		Nodes:      []placement.Node{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}},
		Partitions: 12, Strategy: placement.LeastPartitions(1, 3),
	}
	table, _ := placement.Compute(in)
	fmt.Println(table.Balance().Counts)

	in.Nodes = append(in.Nodes, placement.Node{ID: "c", Weight: 1})
	in.Assigned = table.Record(placement.Coordinator{ID: "a"})
	for range 3 { // an agent does this for you
		table, _ = placement.Compute(in)
		fmt.Println(table.Balance().Counts)
		in.Assigned = table.Level(placement.Coordinator{ID: "a"}, in.Assigned.Version(), false)
	}
	fmt.Println(table.Why(0))
	// Output:
	// map[a:6 b:6]
	// map[a:6 b:6 c:0]
	// map[a:4 b:5 c:3]
	// map[a:4 b:4 c:4]
	// a moved it from a, which had the most partitions, to c, which had the fewest, in version 2 of the assignment
}
