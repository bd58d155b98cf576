package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// n01 waits for a seed that is gone. n02 and then n00, whose link to n01 was cut, join through n01. n00 has the
// smallest id, so it founds the cluster. If it did so before the others hold its lease, they would ignore it, and it
// would lose them.
func TestFoundsWhenHeld(t *testing.T) {
	t.Parallel()
	for cut := time.Duration(0); cut < 4*time.Second; cut += 250 * time.Millisecond {
		var latest *lease.Message
		c := fleet{sim.New(sim.Options{Tap: func(b []byte) { latest, _ = lease.Decode(b) }}), t}
		first := c.NextAddr(0)
		c.StartWith("n01", sim.Setup{Seeds: []string{first, "10.9.9.9:7946"}})
		c.StartWith("n02", sim.Setup{Seeds: []string{first}})
		c.StartWith("n00", sim.Setup{Seeds: []string{first}})
		c.Cut("n00", "n01")
		c.Cut("n01", "n00")
		c.Run(cut)
		c.Heal()
		c.Run(9 * time.Second)
		if latest == nil || len(latest.Cluster) == 0 {
			t.Errorf("cut for %v: nobody has founded the cluster", cut)
		}
		for _, id := range c.IDs() {
			if n := c.Node(id).View().Stats.Expired; n > 0 {
				t.Errorf("cut for %v: %s has lost %d running members", cut, id, n)
			}
		}
	}
}
