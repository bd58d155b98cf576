package placementtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// TestBroken has a strategy for each breach of the contract, and checks that the suite reports it.
func TestBroken(t *testing.T) {
	for _, tt := range []struct {
		what  string
		fresh func() placement.Strategy
		check string // the check that must fail
		want  string // part of the check's message
	}{
		{"no name", named(""), "Name", "is empty"},
		{"a sign in the name", named("a=b"), "Name", "contains = or a line break"},
		{"a line break in the name", named("a\nb"), "Name", "contains = or a line break"},
		{"a long name", named(strings.Repeat("x", 300)), "Name", "300 bytes, at most 256"},
		{"another name later", named("a", "b"), "Name", `changes from "a" to "b"`},
		{"a name for each instance", named("a", "a", "b"), "Name", `changes from "a" to "b"`},
		{
			"an error",
			assigning(func([]placement.Node, []int) ([]int, error) { return nil, errors.New("no zone") }), "Total",
			"1 partitions on a single node: Assign fails: no zone",
		},
		{"fails without roles", assigning(needsRole), "Total", "nobody is an sfu"},
		{
			"a partition short",
			assigning(func(_ []placement.Node, owners []int) ([]int, error) { return owners[1:], nil }), "Total",
			"Assign returns 0 owners",
		},
		{"nothing", assigning(func([]placement.Node, []int) ([]int, error) { return nil, nil }), "Total", "Assign returns 0 owners"},
		{
			"index too great",
			assigning(func(_ []placement.Node, owners []int) ([]int, error) { owners[0]++; return owners, nil }),
			"Total", "partition 0 to node index 1; there are 0 to 0",
		},
		{
			"index negative",
			assigning(func(_ []placement.Node, owners []int) ([]int, error) { owners[0] = -1; return owners, nil }),
			"Total", "partition 0 to node index -1",
		},
		{"greatest weights overflow", assigning(overflows), "Total", "4 nodes of the greatest weight"},
		{"a panic", assigning(func([]placement.Node, []int) ([]int, error) { panic("oh") }), "Total", "the strategy panics: oh"},
		{"random", assigning(random), "Deterministic", "is there a random number"},
		{"the order of a map", assigning(mapOrder), "Deterministic", "answers differently"},
		{"a seed for each instance", newSeeded, "Deterministic", "another instance answers differently"},
		{"sticky", func() placement.Strategy { return &sticky{} }, "Forgetful", "nodes with different histories would not agree"},
		{"keeps by ids", func() placement.Strategy { return &keeper{byID: true} }, "Forgetful", "nodes with different histories would not agree"},
		{"sorts its argument", assigning(sortsByWeight), "LeavesNodesAlone", "Assign modifies the nodes"},
		{"notes on labels", assigning(writesLabels), "LeavesNodesAlone", "Assign modifies the nodes"},
		{"modifies when it ranks", ranking(func(nodes []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
			nodes[0].Weight++
			return ranked
		}), "LeavesNodesAlone", "Rank modifies the nodes"},
		{"keeps the slice", func() placement.Strategy { return &keeper{} }, "KeepsNoNodes", "must not keep the slice"},
		{"keeps the slice for ranks", func() placement.Strategy { return &rankKeeper{} }, "KeepsNoNodes", "must not keep the slice"},
		{"ranks another first", reranking(slices.Reverse[[]int]), "Rank", "is not the beginning of the rank of all"},
		{"ranks by index", reranking(slices.Sort[[]int]), "Rank", "is not the beginning of the rank of all"},
		{"ranks as if by turns", ranking(func(nodes []placement.Node, p placement.Partition, n int, _ []int) []int {
			return placement.Modulo().Rank(nodes, p, n)
		}), "Rank", "but Assign gives it to"},
		{"ranks somebody twice", reranking(func(ranked []int) { copy(ranked[min(1, len(ranked)):], ranked[:1]) }), "Rank", "names node-00 twice"},
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
		{"says nothing", explaining(func() string { return " " }), "Explain", `says " " of partition 0`},
		{"says too much", explaining(func() string { return "a\nb" }), "Explain", "should be a sentence"},
		{"says something else each time", explaining(func() string { return fmt.Sprint(rand.Uint64()) }), "Explain", "says both "},
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
		{"moves to an unknown node", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return []placement.Move{{From: nodes[0].ID, To: "x"}}
		}), "Stateful", `to "x", which is not among the 1 nodes`},
		{"moves another node's", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return []placement.Move{{From: "x", To: nodes[0].ID}}
		}), "Stateful", `from "x", owned by "node-00"`},
		{"moves beyond the last", levelling(func([]placement.Node, []int) []placement.Move {
			return []placement.Move{{Partition: 1}}
		}), "Stateful", "moves partition 1, which must not move"},
		{"moves twice", levelling(func(nodes []placement.Node, _ []int) []placement.Move {
			return slices.Repeat([]placement.Move{{From: nodes[0].ID, To: nodes[0].ID}}, 2)
		}), "Stateful", "moves partition 0, which must not move"},
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
		{"a scratch buffer for all", func() placement.Strategy { return &scratch{} }, "Concurrent", "must be safe for concurrent use"},
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

// Correct strategies pass the suite.
func TestSound(t *testing.T) {
	Strategy(t, always(patched{}), Options{Minimal: true, Nodes: mixedFleet(5)})
	Strategy(t, func() placement.Strategy { return placement.Bounded(100) }, Options{RankIgnoresLoad: true})
	Strategy(t, always(recalling{}), Options{Minimal: true})
}

// brokenEnv names the fault with which TestChild fails, in a separate process.
const brokenEnv = "ROOST_PLACEMENTTEST_BROKEN"

// TestChild does nothing, unless TestReports runs it in a separate process.
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

// The suite reports the failed checks to the user, with reasons.
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
