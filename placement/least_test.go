package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestLeastBadWeights(t *testing.T) {
	nodes := make([]placement.Node, 10_000)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprint("n", i)), Weight: 1<<32 - 1}
	}
	_, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 65536, Strategy: placement.LeastPartitions(1, 3)})
	if err == nil || !strings.Contains(err.Error(), "use smaller ones") {
		t.Errorf("weights beyond all bounds: %v", err)
	}
}

func TestLeastNames(t *testing.T) {
	for want, s := range map[string]placement.Strategy{
		"least-partitions-1-3":           placement.LeastPartitions(1, 3),
		"least-partitions-1-0":           placement.LeastPartitions(0, -1),
		"least-partitions-5-65536+zones": placement.Zoned(placement.LeastPartitions(5, 1<<30)),
	} {
		if s.Name() != want || !placement.Remembers(s) {
			t.Errorf("%s is called %s and remembers: %v", want, s.Name(), placement.Remembers(s))
		}
	}
	if placement.Remembers(placement.Rendezvous()) {
		t.Error("rendezvous remembers")
	}
}
