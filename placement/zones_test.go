package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Zones do not change owners. TestRankIsThatOfTheStrategy tests the ranks.
func TestZoned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyFleet(1).Draw(t, "nodes")
		nodes[0].Weight = 1 // so that there is always an owner
		base := rapid.SampledFrom([]placement.Strategy{
			placement.Rendezvous(), placement.Bounded(100), placement.Modulo(), placement.ClassicRing(),
		}).Draw(t, "base")
		partitions := anyPartitions().Draw(t, "partitions")
		plain := mustComputeBy(t, base, partitions, nodes...)
		table := mustComputeBy(t, placement.Zoned(base), partitions, nodes...)
		if !slices.Equal(owners(table), owners(plain)) || table.Digest() == plain.Digest() {
			t.Fatal("zones change owners, or the digests are equal")
		}
	})
}

// fleetOf returns nodes in three zones, with equal or random weights.
func fleetOf(rng *rand.Rand, n int, weighted bool) []placement.Node {
	nodes := make([]placement.Node, n)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("n%02d", i)), Weight: 100, Zone: fmt.Sprint("z", rng.IntN(3))}
		if weighted {
			nodes[i].Weight = 50 + uint32(rng.IntN(100))
		}
	}
	return nodes
}

// The nodes of a tenant are distinct and spread over the zones. If a node leaves or joins, it replaces at most one of
// them. If the node that leaves is not among them, nothing changes.
func TestSubset(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	replaced := 0
	for round := range 300 {
		nodes := fleetOf(rng, 1+rng.IntN(20), round%2 == 0)
		whole := mustCompute(t, 16, nodes...)
		gone := rng.IntN(len(nodes))
		rest := mustCompute(t, 16, slices.Delete(slices.Clone(nodes), gone, gone+1)...)
		n, tenant := rng.IntN(8), fmt.Sprint("tenant-", round)
		before, after := whole.Subset(tenant, n), rest.Subset(tenant, n)
		if want := min(n, len(nodes)); len(before) != want || len(sorted(before)) != want || !slices.Equal(before, whole.Subset(tenant, n)) {
			t.Fatalf("%d of %d nodes: %v", n, len(nodes), before)
		}
		there, taken := make(map[string]int), make(map[string]int)
		for _, node := range nodes {
			there[node.Zone]++
			if slices.Contains(before, node.ID) {
				taken[node.Zone]++
			}
		}
		for a := range there {
			for b := range there {
				if taken[a] > taken[b]+1 && taken[b] < there[b] {
					t.Fatalf("%v: %d of %d in %s, %d of %d in %s", before, taken[a], there[a], a, taken[b], there[b], b)
				}
			}
		}
		lost := 0
		for _, id := range before {
			if !slices.Contains(after, id) {
				lost++
			}
		}
		if member := slices.Contains(before, nodes[gone].ID); lost > 1 || !member && lost > 0 {
			t.Fatalf("%v became %v without %s", before, after, nodes[gone].ID)
		}
		replaced += lost
	}
	if replaced < 30 {
		t.Errorf("%d nodes were replaced", replaced)
	}
	var none *placement.Table
	if got := none.Subset("x", 3); len(got) > 0 {
		t.Errorf("of no nodes: %v", got)
	}
}

func sorted(ids []lease.NodeID) []lease.NodeID {
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// The number of tenants that a node serves corresponds to its weight, and few tenants have exactly the same nodes.
func TestSubsetSpreadsTenants(t *testing.T) {
	var nodes []placement.Node
	for i := range 20 {
		nodes = append(nodes, placement.Node{ID: lease.NodeID(fmt.Sprintf("n%02d", i)), Weight: 1})
	}
	nodes[7].Weight = 2
	table := mustCompute(t, 16, nodes...)
	const tenants, n = 5000, 3
	served, sets := make(map[lease.NodeID]int), make(map[string]int)
	for i := range tenants {
		ids := table.Subset(fmt.Sprint("tenant-", i), n)
		for _, id := range ids {
			served[id]++
		}
		sets[fmt.Sprint(sorted(ids))]++
	}
	for id, count := range served {
		low, high := 600, 860 // a fair share is 714, and about 1,350 for twice the weight
		if id == "n07" {
			low, high = 1200, 1500
		}
		if count < low || count > high {
			t.Errorf("%s serves %d tenants", id, count)
		}
	}
	if len(sets) < 900 { // of 1,140
		t.Errorf("%d different sets", len(sets))
	}
}

// RankNear returns the same nodes as Rank. The nodes of the reader's zone come first, and otherwise the order is that
// of Rank.
func TestRankNear(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	table := mustCompute(t, 16, fleetOf(rng, 9, true)...)
	zone := make(map[lease.NodeID]string)
	for _, n := range table.Nodes() {
		zone[n.ID] = n.Zone
	}
	for p := range placement.Partition(16) {
		for n := range 11 {
			var want []lease.NodeID
			for _, near := range []bool{true, false} {
				for _, id := range table.Rank(p, n) {
					if (zone[id] == "z1") == near {
						want = append(want, id)
					}
				}
			}
			if got := table.RankNear(p, n, "z1"); !slices.Equal(got, want) {
				t.Errorf("%d of partition %d: %v, want %v", n, p, got, want)
			}
		}
	}
	var none *placement.Table
	if got := none.RankNear(0, 3, "z1"); len(got) > 0 {
		t.Errorf("of no nodes: %v", got)
	}
}
