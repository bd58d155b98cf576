package placement_test

import (
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// moves checks that partitions moved only to gainer or from loser, and returns the number of moves. An empty gainer or
// loser means that no node may gain or lose.
func moves(t rapid.TB, before, after *placement.Table, gainer, loser lease.NodeID) int {
	t.Helper()
	moved := 0
	now := owners(after)
	for p, from := range owners(before) {
		to := now[p]
		if from == to {
			continue
		}
		moved++
		if to != gainer && from != loser {
			t.Fatal("collateral move of partition", p, "from", from, "to", to)
		}
	}
	return moved
}

// Multiplying all weights by the same factor moves no partition.
func TestOnlyRatiosOfWeightsMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := equals(rapid.SliceOfNDistinct(anyID(), 1, 20, rapid.ID).Draw(t, "ids")...)
		scaled := slices.Clone(nodes)
		factor := rapid.Uint32Range(1, 1<<12).Draw(t, "factor")
		for i := range nodes {
			nodes[i].Weight = rapid.Uint32Range(0, 1<<20-1).Draw(t, "weight")
			scaled[i].Weight = factor * nodes[i].Weight
		}
		partitions := anyPartitions().Draw(t, "partitions")
		moves(t, mustCompute(t, partitions, nodes...), mustCompute(t, partitions, scaled...), "", "")
	})
}

// The rank is the order in which nodes would take over a partition. The reference model repeatedly finds the owner and
// removes it.
func TestRankIsTheOrderOfTakingOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom([]placement.Strategy{
			placement.Rendezvous(), placement.Rendezvous(), placement.Modulo(), placement.ClassicRing(), placement.VnodeRing(),
		}).Draw(t, "strategy")
		nodes := anyNodes(1, 12).Draw(t, "nodes")
		if s.Name() == "vnode-ring" {
			for i := range nodes {
				nodes[i].Weight = nodes[i].Weight%200 + 1 // points cost time
			}
		}
		partitions := rapid.IntRange(1, 50).Draw(t, "partitions")
		p := placement.Partition(rapid.IntRange(0, partitions-1).Draw(t, "partition"))
		var want []lease.NodeID
		for left := nodes; len(left) > 0; left = without(nodes, want...) {
			id, _ := mustComputeBy(t, s, partitions, left...).Owner(p)
			want = append(want, id)
		}
		table := mustComputeBy(t, s, partitions, nodes...)
		for n := range len(nodes) + 2 {
			if diff := cmp.Diff(want[:min(n, len(nodes))], table.Rank(p, n), cmp.Transformer("list", list)); diff != "" {
				t.Fatalf("Rank(%d, %d) (-want +got):\n%s", p, n, diff)
			}
		}
	})
}

// list converts ids to strings, so that nil and an empty list are equal.
func list(ids []lease.NodeID) []string {
	s := []string{}
	for _, id := range ids {
		s = append(s, string(id))
	}
	return s
}

// The tables are so small that equal tables are common.
func TestDigestsEqualIffOwnersEqual(t *testing.T) {
	type key struct {
		partitions int
		strategy   string
	}
	seen := map[key]map[placement.Digest][]lease.NodeID{{}: {(*placement.Table)(nil).Digest(): nil}}
	equal := 0
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]lease.NodeID{"a", "b", "c", "aa", "ab"}), 0, 3, rapid.ID).Draw(t, "ids")
		s := rapid.SampledFrom([]placement.Strategy{placement.Rendezvous(), byTurns{}}).Draw(t, "strategy")
		nodes := equals(ids...)
		for i := range nodes {
			nodes[i].Weight = rapid.Uint32Range(0, 3).Draw(t, "weight")
		}
		table := mustComputeBy(t, s, rapid.IntRange(1, 4).Draw(t, "partitions"), nodes...)
		k := key{table.Partitions(), s.Name()}
		for other, tables := range seen {
			for digest, theirs := range tables {
				same := k == other && slices.Equal(theirs, owners(table))
				if same {
					equal++
				}
				if same != (digest == table.Digest()) {
					t.Fatalf("%v %v and %v %v: owners equal %v, digests equal %v", k, owners(table), other, theirs, same, !same)
				}
			}
		}
		if seen[k] == nil {
			seen[k] = map[placement.Digest][]lease.NodeID{}
		}
		seen[k][table.Digest()] = owners(table)
	})
	if equal == 0 {
		t.Error("no two tables were equal: the property was not tested")
	}
}

// These two valid ids have the same xxHash64 (found by search). Their draws are equal for every partition, so the
// tie-break always decides.
func TestTiesGoToTheSmallerID(t *testing.T) {
	const smaller, greater = "fpmcidcepljjbdpd", "iolknpojjogdaode"
	if xxhash.Sum64String(smaller) != xxhash.Sum64String(greater) {
		t.Fatal("the ids no longer collide: this test tests nothing")
	}
	for _, tt := range []struct {
		name  string
		nodes []placement.Node
		owner lease.NodeID
		rank  []lease.NodeID
	}{
		{"equal", equals(greater, smaller), smaller, []lease.NodeID{smaller, greater}},
		{
			"the greater id weighs more",
			[]placement.Node{{ID: smaller, Weight: 1}, {ID: greater, Weight: 2}},
			greater,
			[]lease.NodeID{greater, smaller},
		},
		{
			"the smaller id weighs more",
			[]placement.Node{{ID: greater, Weight: 1}, {ID: smaller, Weight: 2}},
			smaller,
			[]lease.NodeID{smaller, greater},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := mustCompute(t, 64, tt.nodes...)
			if got := len(table.Owned(tt.owner)); got != 64 {
				t.Errorf("%s owns %d of 64", tt.owner, got)
			}
			var rank []lease.NodeID // from the strategy itself, because the table puts the owner first
			for _, i := range placement.Rendezvous().Rank(table.Nodes(), 5, 2) {
				rank = append(rank, table.Nodes()[i].ID)
			}
			if diff := cmp.Diff(tt.rank, rank); diff != "" {
				t.Errorf("rank (-want +got):\n%s", diff)
			}
		})
	}

	// Because of a third node with another weight, Compute uses the algorithm for different weights. There, the two
	// nodes tie within their class.
	mixed := mustCompute(t, 256, append(equals(greater, smaller), placement.Node{ID: "third", Weight: 2})...)
	if n := len(mixed.Owned(greater)); n != 0 {
		t.Errorf("%s owns %d although %s bids the same", greater, n, smaller)
	}
	if n := len(mixed.Owned(smaller)); n == 0 {
		t.Errorf("%s owns no partition", smaller)
	}

	// Tables of these two nodes differ, although the ids have the same hash.
	if mustCompute(t, 8, equals(greater)...).Digest() == mustCompute(t, 8, equals(smaller)...).Digest() {
		t.Error("tables of different owners have one digest")
	}
}
