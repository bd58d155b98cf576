package placementtest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// patched is rendezvous hashing with a fault put in.
type patched struct {
	name   func() string
	assign func(nodes []placement.Node, owners []int) ([]int, error)
	rank   func(nodes []placement.Node, p placement.Partition, n int, ranked []int) []int
}

func (b patched) Name() string {
	if b.name != nil {
		return b.name()
	}
	return "patched"
}

func (b patched) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := placement.Rendezvous().Assign(nodes, partitions)
	if b.assign != nil {
		return b.assign(nodes, owners)
	}
	return owners, err
}

func (b patched) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	ranked := placement.Rendezvous().Rank(nodes, p, n)
	if b.rank != nil {
		return b.rank(nodes, p, n, ranked)
	}
	return ranked
}

// explaining is a strategy with one reason for everything.
type explaining func() string

func (explaining) Name() string { return "explaining" }

func (explaining) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	return patched{}.Assign(nodes, partitions)
}

func (explaining) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	return patched{}.Rank(nodes, p, n)
}

func (e explaining) Explain([]placement.Node, placement.Partition, int) string { return e() }

// recalling is a strategy that remembers, with a fault put in.
type recalling struct {
	patched
	keep  func(held []int)
	level func(nodes []placement.Node, owners []int) []placement.Move
}

func (r recalling) Keep(nodes []placement.Node, held []int) ([]int, error) {
	held = slices.Clone(held)
	if r.keep != nil {
		r.keep(held)
	}
	owners, err := r.Assign(nodes, len(held))
	for p, i := range held {
		if i >= 0 {
			owners[p] = i
		}
	}
	return owners, err
}

func (r recalling) Level(nodes []placement.Node, owners []int, _ []placement.Partition, _ bool) []placement.Move {
	if r.level == nil {
		return nil
	}
	return r.level(nodes, owners)
}

func keeping(f func(held []int)) func() placement.Strategy { return always(recalling{keep: f}) }

func levelling(f func(nodes []placement.Node, owners []int) []placement.Move) func() placement.Strategy {
	return always(recalling{level: f})
}

// always returns a strategy without state as a constructor.
func always(s placement.Strategy) func() placement.Strategy {
	return func() placement.Strategy { return s }
}

func named(names ...string) func() placement.Strategy {
	calls := 0
	return always(patched{name: func() string {
		calls++
		return names[min(calls, len(names))-1]
	}})
}

func assigning(f func(nodes []placement.Node, owners []int) ([]int, error)) func() placement.Strategy {
	return always(patched{assign: f})
}

func ranking(f func(nodes []placement.Node, p placement.Partition, n int, ranked []int) []int) func() placement.Strategy {
	return always(patched{rank: f})
}

// TestBroken has a strategy for each breach of the contract, and the message of the
// suite.
func TestBroken(t *testing.T) { // S2.1
	for _, tt := range []struct {
		what  string
		fresh func() placement.Strategy
		check string // that has to fail
		want  string // part of the message
	}{
		{"no name", named(""), "Name", "is empty"},
		{"a sign in the name", named("a=b"), "Name", "contains = or a line break"},
		{"a line break in the name", named("a\nb"), "Name", "contains = or a line break"},
		{"a long name", named(strings.Repeat("x", 300)), "Name", "300 bytes, at most 256"},
		{"another name later", named("a", "b"), "Name", `changes from "a" to "b"`},
		{"a name for each instance", named("a", "a", "b"), "Name", `changes from "a" to "b"`},
		{"an error", assigning(func([]placement.Node, []int) ([]int, error) { return nil, errors.New("no zone") }), "Total", "1 partitions on a single node: Assign fails: no zone"},
		{"fails without roles", assigning(needsRole), "Total", "nobody is an sfu"},
		{"a partition short", assigning(func(_ []placement.Node, owners []int) ([]int, error) { return owners[1:], nil }), "Total", "Assign returns 0 owners"},
		{"nothing", assigning(func([]placement.Node, []int) ([]int, error) { return nil, nil }), "Total", "Assign returns 0 owners"},
		{"index too great", assigning(func(_ []placement.Node, owners []int) ([]int, error) { owners[0]++; return owners, nil }), "Total", "partition 0 to node index 1; there are 0 to 0"},
		{"index negative", assigning(func(_ []placement.Node, owners []int) ([]int, error) { owners[0] = -1; return owners, nil }), "Total", "partition 0 to node index -1"},
		{"greatest weights overflow", assigning(overflows), "Total", "4 nodes of the greatest weight"},
		{"a panic", assigning(func([]placement.Node, []int) ([]int, error) { panic("oh") }), "Total", "the strategy panics: oh"},
		{"random", assigning(random), "Deterministic", "is there a random number"},
		{"the order of a map", assigning(mapOrder), "Deterministic", "answers differently"},
		{"a seed for each instance", newSeeded, "Deterministic", "another instance answers differently"},
		{"sticky", func() placement.Strategy { return &sticky{} }, "Forgetful", "nodes with different pasts would not agree"},
		{"keeps by ids", func() placement.Strategy { return &keeper{byID: true} }, "Forgetful", "nodes with different pasts would not agree"},
		{"sorts its argument", assigning(sortsByWeight), "LeavesNodesAlone", "Assign modifies the nodes"},
		{"notes on labels", assigning(writesLabels), "LeavesNodesAlone", "Assign modifies the nodes"},
		{"modifies when it ranks", ranking(func(nodes []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			nodes[0].Weight++
			return ranked
		}), "LeavesNodesAlone", "Rank modifies the nodes"},
		{"keeps the slice", func() placement.Strategy { return &keeper{} }, "KeepsNoNodes", "it must not be kept"},
		{"keeps the slice for ranks", func() placement.Strategy { return &rankKeeper{} }, "KeepsNoNodes", "it must not be kept"},
		{"ranks another first", ranking(func(_ []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			slices.Reverse(ranked)
			return ranked
		}), "Rank", "is not how the rank of all begins"},
		{"ranks by index", ranking(func(_ []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			slices.Sort(ranked)
			return ranked
		}), "Rank", "is not how the rank of all begins"},
		{"ranks as if by turns", ranking(func(nodes []placement.Node, p placement.Partition, n int, _ []int) []int {
			return placement.Modulo().Rank(nodes, p, n)
		}), "Rank", "but Assign gives it to"},
		{"ranks somebody twice", ranking(func(_ []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			if len(ranked) > 1 {
				ranked[1] = ranked[0]
			}
			return ranked
		}), "Rank", "names node-00 twice"},
		{"ranks nobody", ranking(func([]placement.Node, placement.Partition, int, []int) []int { return nil }), "Rank", "names 0 nodes of 1"},
		{"ranks one out of range", ranking(func(nodes []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			if len(ranked) > 0 {
				ranked[0] = len(nodes)
			}
			return ranked
		}), "Rank", "names node index 1; there are 0 to 0"},
		{"ranks all, always", ranking(func(nodes []placement.Node, p placement.Partition, _ int, _ []int) []int {
			return placement.Rendezvous().Rank(nodes, p, len(nodes))
		}), "Rank", "returns 2 indexes; it should return 1"},
		{"ranks at random", ranking(func(_ []placement.Node, _ placement.Partition, n int, ranked []int) []int {
			if n > 1 {
				rand.Shuffle(len(ranked)-1, func(i, k int) { ranked[i+1], ranked[k+1] = ranked[k+1], ranked[i+1] })
			}
			return ranked
		}), "Rank", "1 partitions on 3 equal nodes: Rank"},
		{"says nothing", always(explaining(func() string { return " " })), "Explain", `says " " of partition 0`},
		{"says too much", always(explaining(func() string { return "a\nb" })), "Explain", "should be a sentence"},
		{"says something else each time", always(explaining(func() string { return fmt.Sprint(rand.Uint64()) })), "Explain", "once "},
		{"takes from a holder", keeping(func(held []int) {
			if len(held) > 3 && held[3] >= 0 {
				held[3] = 0
			}
		}), "Stateful", "takes partition 3 from its holder"},
		{"another deal without a memory", keeping(func(held []int) {
			if slices.Max(held) < 0 {
				held[0] = 0
			}
		}), "Stateful", "nodes without a memory would not agree"},
		{"moves to a stranger", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return []placement.Move{{From: nodes[0].ID, To: "x"}}
		}), "Stateful", `to "x", which is none of the 1 nodes`},
		{"moves another node's", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return []placement.Move{{From: "x", To: nodes[0].ID}}
		}), "Stateful", `from "x", owned by "node-00"`},
		{"moves beyond the last", levelling(func([]placement.Node, []int) []placement.Move {
			return []placement.Move{{Partition: 1}}
		}), "Stateful", "moves partition 1, which is not to move"},
		{"moves twice", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return slices.Repeat([]placement.Move{{From: nodes[0].ID, To: nodes[0].ID}}, 2)
		}), "Stateful", "moves partition 0, which is not to move"},
		{"never rests", levelling(func(nodes []placement.Node, owners []int) []placement.Move {
			return []placement.Move{{From: nodes[owners[0]].ID, To: nodes[(owners[0]+1)%len(nodes)].ID}}
		}), "Stateful", "(all: false) still moves partition 0"},
		{"moves one of all", levelling(func(nodes []placement.Node, owners []int) []placement.Move {
			p := slices.Index(owners, 0)
			if p < 0 || len(nodes) == 1 {
				return nil
			}
			return []placement.Move{{Partition: placement.Partition(p), From: nodes[0].ID, To: nodes[1].ID}}
		}), "Stateful", "pass 2 of Level (all: true) still moves"},
		{"a scratch buffer for all", func() placement.Strategy { return &scratch{} }, "Concurrent", "has to be safe for concurrent use"},
		{"by turns", always(placement.Modulo()), "Minimal", "comes or goes: not minimal"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			o := Options{Minimal: true}
			all := checks(o)
			at := slices.IndexFunc(all, func(c check) bool { return c.name == tt.check })
			err := guard(func() error { return all[at].run(newSuite(tt.fresh, o)) })
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v; want %q", tt.check, err, tt.want)
			}
		})
	}
}

// The suite passes sound strategies.
func TestSound(t *testing.T) {
	Strategy(t, always(patched{}), Options{Minimal: true, Nodes: mixedFleet(5)})
	Strategy(t, func() placement.Strategy { return placement.Bounded(100) }, Options{RankIgnoresLoad: true})
	Strategy(t, always(recalling{}), Options{Minimal: true})
}

func needsRole(nodes []placement.Node, owners []int) ([]int, error) {
	if !slices.ContainsFunc(nodes, func(n placement.Node) bool { return n.Labels["role"] == "sfu" }) {
		return nil, errors.New("nobody is an sfu")
	}
	return owners, nil
}

// overflows counts thousandths of weights, in 32 bits.
func overflows(nodes []placement.Node, owners []int) ([]int, error) {
	sum := int32(0)
	for _, n := range nodes {
		sum += 1000 * int32(n.Weight)
	}
	if sum < 0 {
		owners[0] = int(sum)
	}
	return owners, nil
}

func random(nodes []placement.Node, owners []int) ([]int, error) {
	owners[0] = rand.IntN(len(nodes))
	return owners, nil
}

func mapOrder(nodes []placement.Node, owners []int) ([]int, error) {
	left := make(map[int]bool)
	for i := range nodes {
		left[i] = true
	}
	for i := range left {
		owners[0] = i
		break
	}
	return owners, nil
}

func sortsByWeight(nodes []placement.Node, owners []int) ([]int, error) {
	slices.SortFunc(nodes, func(a, b placement.Node) int { return int(a.Weight) - int(b.Weight) })
	return owners, nil
}

func writesLabels(nodes []placement.Node, owners []int) ([]int, error) {
	for _, n := range nodes {
		if n.Labels != nil {
			n.Labels["seen"] = "yes"
		}
	}
	return owners, nil
}

// bySeed spreads by a hash of package hash/maphash.
func bySeed(seed maphash.Seed) placement.Strategy {
	owner := func(nodes []placement.Node, p placement.Partition) int {
		return int(maphash.Comparable(seed, p) % uint64(len(nodes)))
	}
	return patched{
		assign: func(nodes []placement.Node, owners []int) ([]int, error) {
			for p := range owners {
				owners[p] = owner(nodes, placement.Partition(p))
			}
			return owners, nil
		},
		rank: func(nodes []placement.Node, p placement.Partition, n int, _ []int) []int {
			ranked := []int{}
			for k := range max(0, min(n, len(nodes))) {
				ranked = append(ranked, (owner(nodes, p)+k)%len(nodes))
			}
			return ranked
		},
	}
}

func newSeeded() placement.Strategy { return bySeed(maphash.MakeSeed()) }

// processSeed is a slip that no test within one process can see.
var processSeed = maphash.MakeSeed()

// sticky leaves a partition where it was, as long as there is such a node.
type sticky struct {
	patched
	last atomic.Pointer[[]string]
}

func (s *sticky) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := s.patched.Assign(nodes, partitions)
	if last := s.last.Load(); last != nil && len(*last) == partitions {
		for p, id := range *last {
			if i := slices.IndexFunc(nodes, func(n placement.Node) bool { return string(n.ID) == id }); i >= 0 {
				owners[p] = i
			}
		}
	}
	var ids []string
	for _, i := range owners {
		ids = append(ids, string(nodes[i].ID))
	}
	s.last.Store(&ids)
	return owners, err
}

// keeper returns its last result for nodes that look the same.
type keeper struct {
	patched
	byID   bool // with a copy of the slice, so that only weights can differ
	nodes  []placement.Node
	owners []int
}

func (k *keeper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	same := func(a, b placement.Node) bool { return a.ID == b.ID && (k.byID || a.Weight == b.Weight) }
	if len(k.owners) == partitions && slices.EqualFunc(k.nodes, nodes, same) {
		return slices.Clone(k.owners), nil
	}
	owners, err := k.patched.Assign(nodes, partitions)
	k.nodes, k.owners = nodes, slices.Clone(owners)
	if k.byID {
		k.nodes = slices.Clone(nodes)
	}
	return owners, err
}

// rankKeeper ranks on the nodes of its first call.
type rankKeeper struct {
	patched
	nodes []placement.Node
}

func (k *rankKeeper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if k.nodes == nil {
		k.nodes = slices.Clone(nodes)
	}
	return k.patched.Assign(nodes, partitions)
}

func (k *rankKeeper) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	if len(k.nodes) == len(nodes) {
		nodes = k.nodes
	}
	return k.patched.Rank(nodes, p, n)
}

// scratch returns wrong results during another call, like one buffer for all calls,
// but without a data race, which would end the test.
type scratch struct {
	patched
	inside atomic.Int32
}

func (s *scratch) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := s.patched.Assign(nodes, partitions)
	alone := s.inside.Add(1) == 1
	for range 1000 {
		alone = alone && s.inside.Load() == 1
		runtime.Gosched()
	}
	s.inside.Add(-1)
	if !alone {
		slices.Reverse(owners)
	}
	return owners, err
}

// brokenEnv has TestChild fail, in a process of its own.
const brokenEnv = "ROOST_PLACEMENTTEST_BROKEN"

// TestChild is what TestReports runs; by itself it has nothing to do.
func TestChild(t *testing.T) {
	switch os.Getenv(brokenEnv) {
	case "process seed":
		Strategy(t, always(bySeed(processSeed)), Options{})
	case "panic":
		Strategy(t, assigning(func([]placement.Node, []int) ([]int, error) { panic("oh") }), Options{})
	case "own nodes":
		Strategy(t, assigning(func(nodes []placement.Node, owners []int) ([]int, error) {
			if nodes[0].Labels["disk"] == "ssd" {
				return nil, errors.New("not on an ssd")
			}
			return owners, nil
		}), Options{Nodes: []placement.Node{{ID: "a", Weight: 1, Labels: map[string]string{"disk": "ssd"}}}})
	}
}

// The report for the user: the failed checks, with reasons.
func TestReports(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for broken, want := range map[string][]string{
		"process seed": {"--- FAIL: TestChild/AnotherProcess", " partitions on ", "another process answers differently"},
		"panic":        {"--- FAIL: TestChild/Total", "the strategy panics: oh", "broken_test.go:", "--- FAIL: TestChild/Concurrent"},
		"own nodes":    {"--- FAIL: TestChild/Total", "1 partitions on Options.Nodes (1): Assign fails: not on an ssd"},
	} {
		t.Run(broken, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestChild$", "-test.count=1")
			cmd.Env = append(os.Environ(), fmt.Sprint(brokenEnv, "=", broken))
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes:\n%s", out)
			}
			for _, part := range want {
				if !strings.Contains(string(out), part) {
					t.Errorf("no %q in\n%s", part, out)
				}
			}
		})
	}
}
