package assignment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// These vectors pin the moves of passes.
func TestLeastVectors(t *testing.T) {
	for _, tt := range []struct{ from, to, moves []int }{
		{[]int{1, 2, 0}, []int{1, 1, 1}, []int{1}},
		{[]int{2, 0, 0}, []int{1, 1, 0}, []int{1}},
		{[]int{1, 1, 0}, []int{1, 1, 0}, nil},
		{[]int{9, 0, 0}, []int{3, 3, 3}, []int{6}}, // without a limit, one pass makes all moves
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

// Passes end after some time, even with a threshold of 1 and if the partitions cannot be divided evenly. No pass moves
// more than maxMoves partitions.
func TestLeastLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.IntRange(1, 4).Draw(t, "threshold")
		maxMoves := rapid.IntRange(0, 5).Draw(t, "max moves")
		nodes := anyNodes(1, 8).Draw(t, "nodes")
		partitions := rapid.IntRange(1, 200).Draw(t, "partitions")
		some := nodes[:rapid.IntRange(1, len(nodes)).Draw(t, "nodes at first")]
		m := newRun(t, placement.LeastPartitions(threshold, maxMoves), partitions, some...)
		m.change(nodes...)
		for _, n := range m.level() {
			if maxMoves > 0 && n > maxMoves {
				t.Errorf("%d partitions moved in one pass, at most %d", n, maxMoves)
			}
		}
		// The reference model measures the distances from fair shares with floating-point numbers.
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

// plainKeep is a simple reference model of Keep. Each partition without an owner goes to the node that is furthest
// below its fair share. If several nodes are equally far below, the first of them gets the partition.
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
			// Is this node further below its share than the best node so far?
			if best.ID == "" || int64(len(before))*int64(n.Weight)-has[n.ID]*total > int64(len(before))*int64(best.Weight)-has[best.ID]*total {
				best = n
			}
		}
		after[p] = best.ID
		has[best.ID]++
	}
	return after
}

// The partitions of a node that leaves go to the nodes with the fewest partitions, and no other partition moves. If the
// node returns, it gets its partitions back.
func TestLeastLeaveAndReturn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(2, 8).Draw(t, "nodes")
		slices.SortFunc(nodes, func(a, b placement.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
		m := newRun(t, placement.LeastPartitions(1, 3), rapid.IntRange(1, 200).Draw(t, "partitions"), nodes...)
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

// A second leave does not move the partitions that the first leave moved. Without deputies, the partitions of the first
// node that left would be distributed again.
func TestLeastDeputiesStay(t *testing.T) {
	nodes := equals("a", "b", "c", "d", "e")
	m := newRun(t, placement.LeastPartitions(1, 3), 100, nodes...)
	m.change(without(nodes, "a")...)
	before := owners(m.table)
	m.change(without(nodes, "a", "c")...)
	for p, id := range owners(m.table) {
		if before[p] != id && before[p] != "c" {
			t.Errorf("partition %d went from %s to %s when c left", p, before[p], id)
		}
	}
}

// A node that was cut off owns every partition in its own assignment. When the split ends, it takes no partition from
// the other nodes.
func TestLeastAloneTakesNothing(t *testing.T) {
	nodes := equals("a", "b", "c")
	m := newRun(t, placement.LeastPartitions(1, 3), 30, nodes...)
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

// A node that started alone, because it found no cluster, takes no partition from the cluster that it joins later,
// however many versions it has written.
func TestLeastBeganAlone(t *testing.T) {
	m := newRun(t, placement.LeastPartitions(1, 3), 30, equals("a", "b")...)
	before := owners(m.table)
	for _, id := range []lease.NodeID{"0", "z"} {
		theirs := recorded(t, 30, assignment.Coordinator{ID: id, Since: 1}, equals(id)...)
		for range 5 { // it leaves and returns several times
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

// When an owner returns, its deputies are removed from the record. Otherwise a deputy would inherit the
// owner's partitions when the owner crashes much later, even if the deputy already has many partitions.
func TestLeastDeputyOfThePast(t *testing.T) {
	nodes := equals("a", "b")
	m := newRun(t, placement.LeastPartitions(1, 0), 100, nodes...)
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

// If an owner is declared gone, its deputy becomes the owner. If the former owner returns, it counts as a newcomer.
func TestLeastGone(t *testing.T) {
	nodes := equals("a", "b", "c")
	m := newRun(t, placement.LeastPartitions(1, 3), 30, nodes...)
	m.change(nodes[1:]...)
	before := owners(m.table)
	m.assigned = assignment.Record(m.table, assignment.Coordinator{ID: "boss", Gone: func(id lease.NodeID) bool { return id == "a" }})
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

// A partition does not move again until all nodes have applied its last move.
func TestLeastNeverMovesWhatIsMoving(t *testing.T) {
	m := held(t, placement.LeastPartitions(1, 0), slices.Repeat([]lease.NodeID{"a"}, 10), "a")
	settled := m.assigned.Version()
	m.change(equals("a", "b")...)
	m.pass()
	before := owners(m.table) // a has five, and five are still moving to b
	m.change(equals("b", "c", "d")...)
	if got := counts(m.table); !slices.Equal(got, []int{5, 3, 2}) {
		t.Fatalf("counts %v", got)
	}
	m.assigned = level(t, m.table, assignment.Coordinator{ID: "boss"}, settled, false)
	m.compute(equals("b", "c", "d")...)
	for p, id := range owners(m.table) {
		if before[p] == "b" && id != "b" {
			t.Errorf("partition %d is moving to b, and was moved on to %s", p, id)
		}
	}
}

// A pass first moves the partitions that have not moved for the longest time.
func TestLeastMovesTheOldestFirst(t *testing.T) {
	m := held(t, placement.LeastPartitions(1, 1), []lease.NodeID{"a", "a", "b"}, "a", "b")
	m.change(equals("b")...)
	m.assigned = assignment.Record(m.table, assignment.Coordinator{ID: "boss", Gone: func(id lease.NodeID) bool { return id == "a" }})
	m.change(equals("b", "c")...)
	m.pass()
	if got := owners(m.table); !slices.Equal(got, []lease.NodeID{"b", "b", "c"}) {
		t.Errorf("owners %v: the partitions that b inherited are younger than its own", got)
	}
}

// If the owner of partitions is absent, a pass moves them from deputy to deputy.
func TestLeastLevelsDeputies(t *testing.T) {
	m := held(t, placement.LeastPartitions(1, 0), slices.Repeat([]lease.NodeID{"a"}, 6), "a", "b")
	m.change(equals("b")...)
	m.change(equals("b", "c")...)
	if n := m.pass(); n != 3 {
		t.Errorf("the pass moves %d partitions, want 3", n)
	}
	m.change(equals("a", "b", "c")...)
	if got := counts(m.table); !slices.Equal(got, []int{6, 0, 0}) {
		t.Errorf("a returns, and counts are %v", got)
	}
}

// While passes can still even out the load, there is no advice to raise Partitions.
func TestLeastAdvice(t *testing.T) {
	m := newRun(t, placement.LeastPartitions(1, 3), 60, equals("a", "b")...)
	m.change(equals("a", "b", "c")...)
	if got := m.table.Balance().Advice(); !strings.Contains(got, "passes even it out") {
		t.Errorf("with a newcomer that has nothing: %q", got)
	}
	m.level()
	if got := m.table.Balance().Advice(); got != "" {
		t.Errorf("when it is even: %q", got)
	}
	m = newRun(t, placement.LeastPartitions(1, 3), 4, equals("a", "b", "c")...)
	if got := m.table.Balance().Advice(); !strings.Contains(got, "raise Partitions") {
		t.Errorf("with too few partitions: %q", got)
	}
}
