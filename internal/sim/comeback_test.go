package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// twice lets time pass, and returns how long there were partitions with two owners.
func (c fleet) twice(d time.Duration, nodes ...string) (twice time.Duration) {
	for range d / (10 * time.Millisecond) {
		if c.Run(10 * time.Millisecond); c.owned(nodes...) > placement.DefaultPartitions {
			twice += 10 * time.Millisecond
		}
	}
	return twice
}

// All nodes were drained, and are undrained at the same moment. No node owns everything in the meantime.
func TestAllComeBack(t *testing.T) {
	all := ids(10)
	c := started(t, 10, sim.Options{Seed: 3})
	c.Run(2 * ttl)
	for _, id := range all {
		c.Node(id).Drain()
	}
	if c.Run(3 * time.Second); c.owned(all...) > 0 {
		t.Fatal("a drained node owns something")
	}
	for _, id := range all {
		c.Node(id).Undrain()
	}
	if twice := c.twice(2*time.Second, all...); twice > 0 || c.owned(all...) != placement.DefaultPartitions {
		t.Errorf("for %v, partitions have two owners; in the end %d are owned", twice, c.owned(all...))
	}
}

// A newcomer that is undrained before its first table gets its share in that table.
func TestComesBackBeforeItsTable(t *testing.T) {
	for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
		c := started(t, 5, sim.Options{Seed: 3})
		c.Run(2 * ttl)
		c.StartWith("new", sim.Setup{Config: func(cfg *node.Config) { cfg.StartDraining = true }})
		c.await("active", 5*time.Second, func() bool { return c.inPhase(node.Active, "new") })
		c.Run(wait)
		c.Node("new").Undrain()
		if twice := c.twice(time.Second, append(ids(5), "new")...); twice > 50*time.Millisecond || c.owned("new") == 0 {
			t.Errorf("undrained %v later: for %v, partitions have two owners", wait, twice)
		}
	}
}
