package placement_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/ring"
)

func ids(nodes []placement.Node) []lease.NodeID {
	ids := make([]lease.NodeID, len(nodes))
	for i, n := range nodes {
		ids[i] = n.ID
	}
	return ids
}

// On the ring of all nodes with a weight above 0, the key of a partition is its number. The test uses the same strategy
// for all fleets, so it fails if the strategy uses the ring of an earlier call.
func TestClassicRingIsTheRing(t *testing.T) {
	s := placement.ClassicRing()
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(2, 12).Draw(t, "nodes")
		nodes[0].Weight = 0
		table := mustComputeBy(t, s, anyPartitions().Draw(t, "partitions"), nodes...)
		r, err := ring.New(ids(nodes[1:])...)
		if err != nil {
			t.Fatal(err)
		}
		for p, owner := range owners(table) {
			if want, _ := r.Owner(strconv.Itoa(p)); owner != want {
				t.Fatalf("partition %d: owner %q, the ring says %q", p, owner, want)
			}
			want := r.Owners(strconv.Itoa(p), 3)
			if diff := cmp.Diff(want, table.Rank(placement.Partition(p), 3)); diff != "" {
				t.Fatalf("rank of partition %d (-want +got):\n%s", p, diff)
			}
			// This calls the strategy itself, because the table puts the owner first.
			if first := s.Rank(table.Nodes(), placement.Partition(p), 1); table.Nodes()[first[0]].ID != owner {
				t.Fatalf("partition %d: owner %q, ranked first %q", p, owner, table.Nodes()[first[0]].ID)
			}
		}
	})
}

// A table ranks its nodes on the ring that Assign has built, and does not build a second ring.
func TestClassicRingKeepsItsRing(t *testing.T) {
	table := mustComputeBy(t, placement.ClassicRing(), 64, fleet(0, 10)...)
	if n := testing.AllocsPerRun(100, func() { table.Rank(5, 3) }); n > 10 {
		t.Errorf("a rank of three allocates %v times: the ring was computed anew", n)
	}
}

// plainVnodes finds the owner of a partition by a scan of all points.
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

func TestVnodeRingLikeReference(t *testing.T) {
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
