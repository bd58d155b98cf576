package placement_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// plainVnodes finds a partition's owner by looking at every point.
func plainVnodes(nodes []placement.Node, p int) lease.NodeID {
	key := xxhash.Sum64String(strconv.Itoa(p))
	var owner lease.NodeID
	least := uint64(math.MaxUint64)
	for _, n := range nodes {
		points := max(1, int(n.Weight)*3/2)
		if n.Weight == 0 {
			points = 0
		}
		for v := range points {
			ahead := xxhash.Sum64String(fmt.Sprintf("%s:%d", n.ID, v)) - key // wraps as the ring does
			if ahead < least || (ahead == least && n.ID < owner) {
				owner, least = n.ID, ahead
			}
		}
	}
	return owner
}

func vnodeFleet() *rapid.Generator[[]placement.Node] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) placement.Node {
		return placement.Node{
			ID:     anyID().Draw(t, "id"),
			Weight: rapid.SampledFrom([]uint32{0, 1, 50, 100, 100, 200}).Draw(t, "weight"),
		}
	}), 1, 6, func(n placement.Node) lease.NodeID { return n.ID })
}

func TestVnodeRingLikeTwin(t *testing.T) { // S4.2
	s := placement.VnodeRing()
	rapid.Check(t, func(t *rapid.T) {
		nodes := vnodeFleet().Draw(t, "nodes")
		table := mustComputeBy(t, s, 40, nodes...)
		for p, owner := range owners(table) {
			if want := plainVnodes(nodes, p); owner != want {
				t.Fatalf("partition %d belongs to %q, want %q", p, owner, want)
			}
		}
	})
}

// S4.2, S4.3: a change of one weight, to 0 and from it too, moves partitions only
// to or from that node.
func TestVnodeRingMoves(t *testing.T) {
	s := placement.VnodeRing()
	rapid.Check(t, func(t *rapid.T) {
		nodes := vnodeFleet().Draw(t, "nodes")
		before := mustComputeBy(t, s, 300, nodes...)
		changed := &nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "which")]
		was := changed.Weight
		changed.Weight = rapid.SampledFrom([]uint32{0, 50, 100, 300}).Draw(t, "to")
		after := mustComputeBy(t, s, 300, nodes...)
		for p, owner := range owners(after) {
			old, _ := before.Owner(placement.Partition(p))
			if owner == old {
				continue
			}
			if (changed.Weight > was && owner != changed.ID) || (changed.Weight < was && old != changed.ID) || changed.Weight == was {
				t.Fatalf("%s went from weight %d to %d, and partition %d from %q to %q", changed.ID, was, changed.Weight, p, old, owner)
			}
		}
	})
}

// S4.2: twice the machine, twice the share, within what 150 points allow.
func TestVnodeRingWeights(t *testing.T) {
	share := 0.0
	const fleets = 40
	for seed := range fleets {
		nodes := fleet(seed, 4)
		for i := range nodes {
			nodes[i].Weight = 100
		}
		nodes[0].Weight = 200
		share += float64(len(mustComputeBy(t, placement.VnodeRing(), 4096, nodes...).Owned(nodes[0].ID))) / 4096 / fleets
	}
	if math.Abs(share-0.4) > 0.02 {
		t.Errorf("a node of weight 200 beside three of 100 owns %.3f, want 0.4", share)
	}
}

// The same on every CPU, and in every later version.
func TestVnodeRingIsPinned(t *testing.T) { // S4.2
	nodes := []placement.Node{{ID: "node-a", Weight: 100}, {ID: "node-b", Weight: 100}, {ID: "node-c", Weight: 200}}
	table := mustComputeBy(t, placement.VnodeRing(), 1024, nodes...)
	if got := table.Digest().String(); got != "62ed441eb4bf636b" {
		t.Errorf("digest %s, counts %v", got, table.Balance().Counts)
	}
}

func TestVnodeRingOfTooManyPoints(t *testing.T) {
	nodes := equals("a", "b", "c")
	for i := range nodes {
		nodes[i].Weight = lease.MaxWeight
	}
	if _, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 8, Strategy: placement.VnodeRing()}); err == nil {
		t.Error("4.5 million points are taken")
	}
}
