package placement_test

import (
	"strings"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// Every strategy can say why a partition is where it is.
func TestWhy(t *testing.T) { // S2.4
	nodes := equals("a", "b", "c")
	for _, tt := range []struct {
		table *placement.Table
		want  string
	}{
		{mustCompute(t, 8, nodes...), "drew the best number of 3 nodes for it; without it, "},
		{mustCompute(t, 8, nodes[0]), "a is the only node that may own anything"},
		{mustComputeBy(t, placement.Zoned(placement.Modulo()), 8, nodes...), "5 mod 3 nodes is 2, and c has this place"},
		{mustComputeBy(t, placement.Bounded(125), 8, nodes...), "had room"},
		{mustComputeBy(t, placement.VnodeRing(), 8, nodes...), "on the ring of 3 nodes, the first point at or after its hash is one of "},
		{mustComputeBy(t, placement.LeastPartitions(1, 2), 8, nodes...), "it had no owner on record, and c had the fewest partitions"},
		{mustComputeBy(t, byTurns{}, 8, nodes...), "the strategy by-turns placed it on c"},
		{mustCompute(t, 5, nodes...), "there is no partition 5: they are numbered from 0 to 4"},
		{mustCompute(t, 8), "there is no node that may own anything"},
		{nil, "there is no partition 5"},
	} {
		if got := tt.table.Why(5); !strings.Contains(got, tt.want) {
			t.Errorf("%q, want … %s", got, tt.want)
		}
	}
}
