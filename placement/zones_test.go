package placement_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestZoned(t *testing.T) { // S3.11
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(1, 9).Draw(t, "nodes")
		zone := make(map[lease.NodeID]string)
		for i := range nodes {
			nodes[i].Zone = rapid.SampledFrom([]string{"", "east", "west", "north"}).Draw(t, "zone")
			zone[nodes[i].ID] = nodes[i].Zone
		}
		base := rapid.SampledFrom([]placement.Strategy{
			placement.Rendezvous(), placement.Bounded(100), placement.Modulo(), placement.ClassicRing(),
		}).Draw(t, "base")
		partitions := anyPartitions().Draw(t, "partitions")
		plain := mustComputeBy(t, base, partitions, nodes...)
		table := mustComputeBy(t, placement.Zoned(base), partitions, nodes...)
		if !slices.Equal(owners(table), owners(plain)) || table.Digest() == plain.Digest() {
			t.Fatal("zones change owners, or the digests are equal")
		}
		p := placement.Partition(rapid.IntRange(0, partitions-1).Draw(t, "partition"))
		all := plain.Rank(p, len(nodes))
		for k := range len(all) + 1 {
			got := table.Rank(p, k)
			if len(got) != k || (k > 0 && got[0] != all[0]) {
				t.Fatalf("the %d best of %v are %v", k, all, got)
			}
			// Each is the best node left in the zones that occur least so far.
			named := make(map[string]int)
			left := slices.Clone(all)
			for _, id := range got {
				least := len(all)
				for _, other := range left {
					least = min(least, named[zone[other]])
				}
				want := left[slices.IndexFunc(left, func(other lease.NodeID) bool { return named[zone[other]] == least })]
				if id != want {
					t.Fatalf("of %v, in %v, the rank is %v; %s should come before %s", all, zone, got, want, id)
				}
				named[zone[id]]++
				left = slices.DeleteFunc(left, func(other lease.NodeID) bool { return other == id })
			}
		}
	})
}

// A base with zones serves a strategy with or without them.
func TestZonedDerives(t *testing.T) {
	nodes := fleet(1, 40)
	base := mustComputeBy(t, placement.Zoned(placement.Rendezvous()), 256, nodes[1:]...)
	for _, s := range []placement.Strategy{placement.Rendezvous(), placement.Zoned(placement.Rendezvous())} {
		got, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 256, Strategy: s, Base: base})
		if want := mustComputeBy(t, s, 256, nodes...); err != nil || got.Digest() != want.Digest() {
			t.Errorf("%s: %v, digest %s, want %s", s.Name(), err, got.Digest(), want.Digest())
		}
	}
}
