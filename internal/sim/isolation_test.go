package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

func needing(members int) sim.Options {
	return sim.Options{Seed: uint64(members), Config: func(cfg *node.Config) { cfg.MinMembers = members }}
}

// isolated fails the test unless these nodes own nothing, and say why.
func (c fleet) isolated(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		if p := c.Node(id); len(p.Owned()) > 0 || p.View().Phase != node.Isolated {
			c.t.Fatalf("%s is %v, sees %d members, owns %d partitions", id, p.View().Phase, len(p.Members()), len(p.Owned()))
		}
	}
}

// inPhase reports whether all these nodes are in the given phase.
func (c fleet) inPhase(phase node.Phase, ids ...string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return c.Node(id).View().Phase != phase })
}

// With a minimum of ten members, nodes own nothing before the tenth node has started. Then each node gets its share
// without delay.
func TestStartWaitsForMembers(t *testing.T) {
	for _, interval := range []time.Duration{0, 100 * time.Millisecond, 7 * time.Second} {
		c := newFleet(t, needing(10))
		all := ids(10)
		for _, id := range all[:9] {
			c.Start(id)
			c.Run(interval)
		}
		for range 200 {
			c.Run(100 * time.Millisecond)
			for _, id := range all[:9] {
				if p := c.Node(id); len(p.Owned()) > 0 || len(p.Batches()) > 0 {
					t.Fatalf("%s owns %d partitions, and sees %d members", id, len(p.Owned()), len(p.Members()))
				}
			}
		}
		c.isolated(all[:9]...)
		c.Start(all[9])
		took := c.agree(3 * time.Second)
		t.Logf("a node every %v: agreement %v after the tenth", interval, took)
		if took < 500*time.Millisecond {
			t.Error("more nodes may be about to start, but the ten did not wait for two debounces")
		}
		for _, id := range all {
			if b := c.Node(id).Batches(); len(b) != 1 {
				t.Errorf("%s published %d states on the way", id, len(b))
			}
		}
	}
}

// In a split, only the side with enough members owns anything. The nodes of the other side keep their last table for
// lookups.
func TestSplitBelowMinMembers(t *testing.T) {
	for _, strategy := range []placement.Strategy{placement.Rendezvous(), placement.LeastPartitions(1, 3)} {
		opts := needing(5)
		opts.Config = func(cfg *node.Config) { cfg.MinMembers, cfg.Strategy = 5, strategy }
		c := started(t, 10, opts)
		all := ids(10)
		few, many := all[:3], all[3:]
		before := c.Owners()
		r := c.record()
		c.Split(few, many)
		took := c.await("the side of three is isolated", ttl+time.Second, func() bool { return c.inPhase(node.Isolated, few...) })
		t.Logf("%s: isolated %v after the cut", strategy.Name(), took)
		c.isolated(few...)
		c.await("the side of seven owns everything", ttl, func() bool { return c.owned(many...) == placement.DefaultPartitions })
		c.Run(5 * ttl) // after ten TTLs, least-partitions would permanently reassign the partitions of lost nodes
		c.isolated(few...)
		for _, id := range few {
			p := c.Node(id)
			if p.View().Table == nil || p.View().State == nil {
				t.Fatalf("%s answers no lookup", id)
			}
			if left := r.left(id); len(left) != 7 {
				t.Errorf("%s published that %v left", id, left)
			}
		}
		c.Heal()
		c.await("all are active", 20*time.Second, func() bool { return c.inPhase(node.Active, all...) })
		t.Logf("agreement %v after that", c.agree(3*time.Second))
		if moved := c.moved(before); len(moved) > 0 {
			t.Errorf("%s: %d partitions have other owners than before the split", strategy.Name(), len(moved))
		}
	}
}

// owned returns how many partitions these nodes own.
func (c fleet) owned(ids ...string) (n int) {
	for _, id := range ids {
		n += len(c.Node(id).Owned())
	}
	return n
}

// A fleet that lost too many nodes owns nothing until one of them returns.
func TestCrashBelowMinMembers(t *testing.T) {
	c := started(t, 10, needing(8))
	all := ids(10)
	before := c.Owners()
	c.Crash(all[0], all[1])
	c.await("eight own everything", ttl+time.Second,
		func() bool { return c.owned(all[2:]...) == placement.DefaultPartitions && c.converged() })
	c.agree(time.Second)
	c.Crash(all[2])
	c.await("seven are isolated", ttl+time.Second, func() bool { return c.inPhase(node.Isolated, all[3:]...) })
	c.isolated(all[3:]...)
	c.Run(time.Minute)
	c.isolated(all[3:]...)
	r := c.record()
	c.Start(all[2])
	t.Logf("agreement %v after the restart", c.agree(3*time.Second))
	for _, id := range c.IDs() {
		if n := len(c.Node(id).Owned()); id != all[2] && r.acquired(id) > 2*n {
			t.Errorf("%s owns %d but acquired %d on the way", id, n, r.acquired(id))
		}
	}
	c.Start(all[0], all[1])
	c.agree(3 * time.Second)
	c.onlyMoved(before, nothing)
}

// When a node leaves and too few members remain, the remaining members own nothing from then on. If an isolated node is
// told to drain, it drains when it becomes active again.
func TestLeaveBelowMinMembers(t *testing.T) {
	c := started(t, 3, needing(3))
	c.Leave("n02")
	c.isolated("n00", "n01")
	c.Node("n00").Drain()
	c.Start("n02")
	c.await("n00 drains", ttl, func() bool { return c.inPhase(node.Active, ids(3)...) && c.converged() && !c.candidate("n00") })
	c.agree(time.Second)
}
