package cluster_test

import (
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// weightInTable returns the weight of a node in its own table, 0 if it is absent.
func weightInTable(a *cluster.Agent) uint32 {
	s := a.Snapshot()
	for _, n := range s.Table.Nodes() {
		if n.ID == s.Self.ID {
			return n.Weight
		}
	}
	return 0
}

// Once SetWeight has returned, the snapshot shows the weight and the table of it.
func TestSetWeightReturnsWithTheTable(t *testing.T) {
	a := startAgent(t, local("a"))
	waitReady(t, a)
	for _, w := range []uint32{50, 50, 0, 300} {
		if err := a.SetWeight(w); err != nil {
			t.Fatal(err)
		}
		if own, table := a.Snapshot().Self.Weight, weightInTable(a); own != w || table != w {
			t.Errorf("after SetWeight(%d): weight %d, in the table %d", w, own, table)
		}
	}
	if err := a.SetWeight(lease.MaxWeight + 1); err == nil {
		t.Error("SetWeight accepts more than MaxWeight")
	}
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.SetWeight(70); err != nil { // no table shows the weight of a draining node
		t.Fatal(err)
	}
	if own, table := a.Snapshot().Self.Weight, weightInTable(a); own != 70 || table != 0 {
		t.Errorf("draining: weight %d, in the table %d", own, table)
	}
}
