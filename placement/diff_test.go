package placement_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// This tests the moves and their minimum number.
func TestDiff(t *testing.T) {
	before := mustComputeBy(t, fixed{name: "s", assign: []int{0, 0, 1, 1}}, 4, equals("a", "b")...)
	after := mustComputeBy(t, fixed{name: "s", assign: []int{0, 1, 0, 0}}, 4, equals("b", "c")...)
	b, err := json.Marshal(placement.Diff(before, after))
	want := `{"moves":[{"partition":0,"from":"a","to":"b"},{"partition":1,"from":"a","to":"c"}],"expected_min":2,` +
		`"before":{"counts":{"a":2,"b":2},"mean":2,"max_mean":1,"cv":0},` +
		`"after":{"counts":{"b":3,"c":1},"mean":2,"max_mean":1.5,"cv":0.5}}`
	if err != nil || string(b) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b, want)
	}
}

// These results of ExpectedMin were calculated by hand.
func TestExpectedMin(t *testing.T) {
	weights := func(w ...uint32) (nodes []placement.Node) {
		for i, weight := range w {
			nodes = append(nodes, placement.Node{ID: lease.NodeID('a' + rune(i)), Weight: weight})
		}
		return nodes
	}
	for _, c := range []struct {
		name          string
		before, after []placement.Node
		owners        []int // before
		want          int
	}{
		{"nothing changes, however uneven", weights(1, 1), weights(1, 1), []int{0, 0, 0, 0, 0, 1}, 0},
		{"all weights double", weights(1, 1), weights(2, 2), []int{0, 0, 0, 0, 0, 1}, 0},
		{"all weights halve", weights(2, 2), weights(1, 1), []int{0, 0, 0, 0, 0, 1}, 0},
		{"an empty node leaves an uneven fleet", weights(1, 1, 1), weights(1, 1), []int{0, 0, 0, 1}, 0},
		{"a third one joins", weights(1, 1), weights(1, 1, 1), []int{0, 0, 0, 1, 1, 1}, 2},
		{"an indivisible number", weights(1, 1), weights(1, 1, 1), []int{0, 0, 0, 1, 1}, 1},
		{"one leaves", weights(1, 1, 1), weights(1, 1), []int{0, 1, 2, 2, 2, 2}, 4},
		{"an empty node leaves", weights(1, 1, 1), weights(1, 1), []int{0, 0, 1, 1}, 0},
		{"one takes another's place", weights(1, 1, 0), weights(1, 0, 1), []int{0, 0, 0, 1}, 2},
		{"its weight rises", weights(1, 1), weights(2, 1), []int{0, 0, 0, 1, 1, 1}, 1},
		{"its weight rises, and it has enough", weights(1, 1), weights(2, 1), []int{0, 0, 0, 0, 1, 1}, 0},
		{"its weight falls", weights(2, 1), weights(1, 1), []int{0, 0, 0, 0, 1, 1}, 1},
		{"it drains", weights(1, 1), weights(0, 1), []int{0, 0, 0, 1}, 3},
		{"the first one", nil, weights(1), nil, 6},
		{"the last one", weights(1), nil, []int{0, 0}, 2},
		{"no nodes at all", nil, nil, nil, 0},
	} {
		partitions := len(c.owners)
		if partitions == 0 {
			partitions = 6
		}
		before := mustComputeBy(t, fixed{name: "s", assign: c.owners}, partitions, c.before...)
		if got := placement.Diff(before, mustCompute(t, partitions, c.after...)).ExpectedMin; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The reference model of ExpectedMin tries all tables of the new nodes, and finds the table with the fewest
// moves that fulfils the definition.
func TestExpectedMinAgainstAllTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 6).Draw(t, "partitions")
		draw := func(name string) (nodes []placement.Node) {
			for _, id := range []lease.NodeID{"a", "b", "c", "d"} {
				nodes = append(nodes, placement.Node{ID: id, Weight: rapid.Uint32Range(0, 4).Draw(t, name)})
			}
			return nodes
		}
		deal := rapid.SliceOfN(rapid.IntRange(0, 3), partitions, partitions).Draw(t, "owners")
		old, now := draw("before"), draw("after")
		n := len(mustCompute(t, 1, old...).Nodes())
		for p := range deal {
			deal[p] %= max(1, n)
		}
		before := mustComputeBy(t, fixed{name: "s", assign: deal}, partitions, old...)
		after := mustCompute(t, partitions, now...)
		if got, want := placement.Diff(before, after).ExpectedMin, fewestMoves(before, after, old, now); got != want {
			t.Fatalf("%v, owners %v, to %v: %d, want %d", old, owners(before), now, got, want)
		}
	})
}

// fewestMoves tries every table that uses the new nodes, and returns the smallest number of partitions that must move to
// get from before to a table that fulfils the definition of ExpectedMin.
func fewestMoves(before, after *placement.Table, old, now []placement.Node) int {
	partitions := before.Partitions()
	nodes := after.Nodes()
	if len(nodes) == 0 {
		if len(before.Nodes()) == 0 {
			return 0
		}
		return partitions
	}
	fewest := math.MaxInt
	owner := make([]int, partitions)
	var try func(p, moves int)
	try = func(p, moves int) {
		if p < partitions {
			for i := range nodes {
				owner[p] = i
				was, _ := before.Owner(placement.Partition(p))
				moved := 0
				if was != nodes[i].ID {
					moved = 1
				}
				try(p+1, moves+moved)
			}
			return
		}
		if moves < fewest && fulfils(owner, nodes, old, now) {
			fewest = moves
		}
	}
	try(0, 0)
	return fewest
}

// fulfils reports whether a table satisfies the definition of ExpectedMin. Both lists of nodes contain all nodes in the
// same order.
func fulfils(owner []int, nodes, old, now []placement.Node) bool {
	count := map[lease.NodeID]int{}
	for _, i := range owner {
		count[nodes[i].ID]++
	}
	total := func(nodes []placement.Node) (w int) {
		for _, n := range nodes {
			w += int(n.Weight)
		}
		return w
	}
	oldTotal, newTotal := total(old), total(now)
	for i := range now {
		had, has := int(old[i].Weight), int(now[i].Weight)
		fair := len(owner) * has // over newTotal
		rises := has > had && (oldTotal == 0 || has*oldTotal > had*newTotal)
		falls := has < had && has*oldTotal < had*newTotal
		if rises && (count[now[i].ID]+1)*newTotal <= fair {
			return false // one more partition would not exceed the fair share
		}
		if falls && (count[now[i].ID]-1)*newTotal >= fair {
			return false
		}
	}
	return true
}

// Rendezvous hashing makes about as many moves as expected.
func TestExpectedMinIsMet(t *testing.T) {
	nodes := fleet(3, 10)
	table := mustCompute(t, 4096, nodes...)
	for name, to := range map[string][]placement.Node{
		"join":  append(fleet(3, 10), placement.Node{ID: "new", Weight: 1}),
		"leave": nodes[1:],
		"swap":  append(fleet(3, 10)[1:], placement.Node{ID: "new", Weight: 1}),
	} {
		c := placement.Diff(table, mustCompute(t, 4096, to...))
		if off := float64(len(c.Moves)) / float64(c.ExpectedMin); off < 0.85 || off > 1.15 && name != "swap" {
			t.Errorf("%s: %d moves, %d expected", name, len(c.Moves), c.ExpectedMin)
		}
	}
	if c := placement.Diff(table, mustComputeBy(t, placement.Modulo(), 4096, nodes...)); c.ExpectedMin != 0 || len(c.Moves) < 3000 {
		t.Errorf("to another strategy: %d moves, %d expected", len(c.Moves), c.ExpectedMin)
	}
}

// Diff of tables with different numbers of partitions returns no moves, but KeysMoved works. The reference model looks
// up the hashes 0, 1, 2, … up to a multiple of both numbers.
func TestKeysMoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(0, 5).Draw(t, "nodes")
		p, q := rapid.IntRange(1, 60).Draw(t, "P"), rapid.IntRange(1, 60).Draw(t, "Q")
		keep := rapid.IntRange(0, len(nodes)).Draw(t, "keep")
		before, after := mustCompute(t, p, nodes[:keep]...), mustCompute(t, q, nodes...)
		moved := 0
		for hash := range p * q {
			from, _ := before.Owner(placement.Partition(hash % p))
			to, _ := after.Owner(placement.Partition(hash % q))
			if from != to {
				moved++
			}
		}
		if got, want := placement.KeysMoved(before, after), float64(moved)/float64(p*q); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%d to %d partitions: %v, want %v", p, q, got, want)
		}
		c := placement.Diff(before, after)
		if (c.Moves == nil) != (p != q) {
			t.Fatalf("%d to %d partitions: moves %v", p, q, c.Moves)
		}
		if p == q && len(c.Moves) != moved/p {
			t.Fatalf("%d moves, want %d", len(c.Moves), moved/p)
		}
	})
}

// The largest tables have the most pairs of partitions.
func TestKeysMovedOfTheLargest(t *testing.T) {
	const p = placement.MaxPartitions
	before, after := mustCompute(t, p, equals("a")...), mustCompute(t, p-1, equals("b")...)
	if got := placement.KeysMoved(before, after); got != 1 {
		t.Errorf("to another node: %v", got)
	}
	if got := placement.KeysMoved(before, mustCompute(t, p-1, equals("a")...)); got != 0 {
		t.Errorf("to the same node: %v", got)
	}
}

func TestDiffOfNoTable(t *testing.T) {
	var none *placement.Table
	some := mustCompute(t, 4, equals("a")...)
	if c := placement.Diff(none, some); c.Moves != nil || placement.KeysMoved(none, some) != 1 || placement.KeysMoved(some, none) != 1 {
		t.Errorf("to the first table: %+v", c)
	}
	diff := cmp.Diff(placement.Changes{Moves: []placement.Move{}, Before: none.Balance(), After: none.Balance()}, placement.Diff(none, none))
	if diff != "" || placement.KeysMoved(none, none) != 0 {
		t.Error(diff)
	}
}

func ExampleDiff() {
	nodes := []placement.Node{{ID: "a", Weight: 100}, {ID: "b", Weight: 100}}
	before, _ := placement.Compute(placement.Input{Partitions: 8, Nodes: nodes})
	after, _ := placement.Compute(placement.Input{Partitions: 8, Nodes: append(nodes, placement.Node{ID: "c", Weight: 100})})
	c := placement.Diff(before, after)
	fmt.Println(len(c.Moves), "moves, expected", c.ExpectedMin)
	for _, m := range c.Moves {
		fmt.Printf("%d: %s to %s\n", m.Partition, m.From, m.To)
	}
	// Output:
	// 3 moves, expected 2
	// 1: b to c
	// 3: b to c
	// 5: b to c
}
