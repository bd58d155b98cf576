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

func TestVnodeRingOfTooManyPoints(t *testing.T) {
	nodes := equals("a", "b", "c")
	for i := range nodes {
		nodes[i].Weight = lease.MaxWeight
	}
	if _, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 8, Strategy: placement.VnodeRing()}); err == nil {
		t.Error("4.5 million points are taken")
	}
}
