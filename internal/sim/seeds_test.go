package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// A new node keeps waiting while its only seed accepts connections but does not answer. It continues once the seed
// answers, or once the seed accepts no more connections.
func TestStuckSeed(t *testing.T) {
	for name, tt := range map[string]struct {
		recover func(c fleet)
		limit   time.Duration
		members int
	}{
		"recovers": {func(c fleet) { c.Resume("n00") }, 10 * time.Second, 2},
		"dies":     {func(c fleet) { c.Crash("n00") }, 15 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var lines logbook
			c := started(t, 1, sim.Options{Log: lines.write})
			c.Pause("n00")
			p := c.StartWith("new", sim.Setup{})
			for range 120 {
				if c.Run(time.Second); p.View().Phase != node.Joining || len(p.Owned()) > 0 {
					t.Fatalf("after %v it is %v and owns %d partitions", c.Elapsed(), p.View().Phase, len(p.Owned()))
				}
			}
			if n := len(lines.find("node=new", "waiting for a seed")); n < 1 || n > 3 {
				t.Errorf("%d lines in two minutes say why: %q", n, lines)
			}
			if p.View().Waits == nil {
				t.Error("its view does not say why it waits")
			}
			tt.recover(c)
			t.Logf("agreement after %v", c.agree(tt.limit))
			if got := len(p.Members()); got != tt.members {
				t.Errorf("%d members", got)
			}
		})
	}
}

// Two live nodes that were cut off from each other find each other again, although the other 30 members are dead.
func TestSplitHealsAmongTheDead(t *testing.T) {
	c := started(t, 32, sim.Options{})
	c.Crash(c.IDs()[:30]...)
	c.Run(2 * ttl)
	c.Split(c.IDs()[:1], c.IDs()[1:])
	c.Run(70 * time.Second)
	c.Heal()
	t.Logf("agreement %v after the split", c.agree(time.Minute))
}

// The two halves of a cluster find each other again after a short and a long split, although all their seeds are dead.
func TestSplitHealsWithoutSeeds(t *testing.T) {
	for _, n := range []int{2, 8, 40} {
		for _, long := range []time.Duration{70 * time.Second, time.Hour} {
			if n == 40 && (long == time.Hour || testing.Short()) {
				continue
			}
			c := started(t, 3+n, sim.Options{Seed: uint64(n)})
			c.Crash("n00", "n01", "n02") // the seeds of all nodes
			c.Run(2 * ttl)
			all := c.IDs()
			c.Split(all[:n/2], all[n/2:])
			c.Run(long)
			if got := len(c.Node(all[0]).Members()); got != n/2 {
				t.Fatalf("one half sees %d members, has %d", got, n/2)
			}
			c.Heal()
			t.Logf("%d nodes: agreement %v after a split of %v", n, c.agree(15*time.Second), long)
		}
	}
}
