package placement_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func ids(nodes []placement.Node) []lease.NodeID {
	ids := make([]lease.NodeID, len(nodes))
	for i, n := range nodes {
		ids[i] = n.ID
	}
	return ids
}

// S0.10, S2.1: a partition is the key of its number, whatever the weights, but
// that a node of weight 0 is absent. One strategy serves all the fleets here, so
// that what it keeps from one call to the next gets in the way if it can.
func TestClassicRingIsTheRing(t *testing.T) {
	s := placement.ClassicRing()
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(2, 12).Draw(t, "nodes")
		nodes[0].Weight = 0
		table := mustComputeBy(t, s, anyPartitions().Draw(t, "partitions"), nodes...)
		r := mustRing(t, ids(nodes[1:])...)
		for p, owner := range owners(table) {
			if want := ringOwner(t, r, strconv.Itoa(p)); owner != want {
				t.Fatalf("partition %d: owner %q, the ring says %q", p, owner, want)
			}
			want := r.Owners(strconv.Itoa(p), 3)
			if diff := cmp.Diff(want, table.Rank(placement.Partition(p), 3)); diff != "" {
				t.Fatalf("rank of partition %d (-want +got):\n%s", p, diff)
			}
			// The strategy itself: the table puts the owner first.
			if first := s.Rank(table.Nodes(), placement.Partition(p), 1); table.Nodes()[first[0]].ID != owner {
				t.Fatalf("partition %d: owner %q, ranked first %q", p, owner, table.Nodes()[first[0]].ID)
			}
		}
	})
}

// S3.9, S3.11: the moves of a join, and a rank that is who would take over.
func TestClassicRingMovesTheMinimum(t *testing.T) {
	s := placement.ClassicRing()
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(2, 12).Draw(t, "nodes")
		partitions := anyPartitions().Draw(t, "partitions")
		with := mustComputeBy(t, s, partitions, nodes...)
		sans := mustComputeBy(t, s, partitions, nodes[1:]...)
		moves(t, sans, with, nodes[0].ID, "")
		moves(t, with, sans, "", nodes[0].ID)
		for _, p := range with.Owned(nodes[0].ID) {
			if heir, _ := sans.Owner(p); with.Rank(p, 2)[1] != heir {
				t.Fatalf("partition %d ranks %v, but falls to %q", p, with.Rank(p, 2), heir)
			}
		}
	})
}

// S3.11: a table ranks on the nodes that it was assigned for, and pays for no
// second ring of them.
func TestClassicRingKeepsItsRing(t *testing.T) {
	table := mustComputeBy(t, placement.ClassicRing(), 64, fleet(0, 10)...)
	if n := testing.AllocsPerRun(100, func() { table.Rank(5, 3) }); n > 10 {
		t.Errorf("a rank of three allocates %v times: the ring was computed anew", n)
	}
}
