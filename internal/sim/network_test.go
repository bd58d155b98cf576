package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
)

// A step of a wall clock moves nothing and ends no lease while the clock stays within MaxSkew. Beyond MaxSkew, the node
// is fenced until its clock is right.
func TestStepClock(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		p, r := c.Node("n01"), c.record()
		before := p.Now()
		p.StepClock(-time.Hour)
		if now := p.Now(); now.Sub(before) != 0 || before.UnixNano()-now.UnixNano() != int64(time.Hour) {
			t.Fatalf("the wall clock went from %v to %v, and the monotonic one by %v", before, now, now.Sub(before))
		}
		for _, by := range []time.Duration{time.Hour, 4 * time.Second, -8 * time.Second, 4 * time.Second, -time.Hour, time.Hour} {
			p.StepClock(by)
			c.Run(20 * time.Second)
		}
		for _, id := range c.IDs() {
			if more := len(r.batches(id)); more != 0 {
				t.Errorf("%s published %d changes", id, more)
			}
		}
		p.StepClock(time.Minute)
		c.Run(20 * time.Second)
		if n := p.View().Stats.Fences; n != 1 || len(p.Owned()) > 0 {
			t.Errorf("a minute ahead it fenced itself %d times, and owns %d", n, len(p.Owned()))
		}
		p.StepClock(-time.Minute)
		c.agree(20 * time.Second)
	})
}

// A node that was fenced marks its old table as stale until it has a new table, whether its clock is ahead or not, and
// also while it combines joins before the new table. A table without the mark is the same as the table of the other
// nodes.
func TestNoTableOfBeforeFence(t *testing.T) {
	for _, ahead := range []time.Duration{0, 7 * time.Second} {
		c := started(t, 3, sim.Options{})
		p := c.Node("n02")
		c.Pause("n02")
		c.Leave("n01")
		c.Run(time.Minute)
		p.StepClock(ahead)
		c.Resume("n02")
		look := func() {
			for range 3000 {
				c.Run(10 * time.Millisecond)
				v, others := p.View(), c.Node("n00").View()
				if v.Stats.Fences > 0 && !v.Stale && len(v.Table.Owned("n01")) > 0 {
					t.Fatalf("clock %v ahead: at %v, in phase %v, it shows a table of %d nodes, the others one of %d",
						ahead, c.Elapsed(), v.Phase, len(v.Table.Nodes()), len(others.Table.Nodes()))
				}
			}
		}
		look()
		if p.View().Stats.Fences == 0 {
			t.Fatal("it was not fenced")
		}
		p.StepClock(-ahead)
		look()
		c.agree(20 * time.Second)
	}
}

// All wall clocks are set by an hour. Nothing moves, because each clock is compared with the median of all clocks.
func TestStepAllClocks(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		r := c.record()
		for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
			for _, id := range c.IDs() {
				c.Node(id).StepClock(by)
			}
			c.Run(20 * time.Second)
		}
		for _, id := range c.IDs() {
			if more := len(r.batches(id)); more != 0 || c.Node(id).View().Stats.Fences != 0 {
				t.Errorf("%s published %d changes, and fenced itself %d times", id, more, c.Node(id).View().Stats.Fences)
			}
		}
	})
}

// Nodes on the same side of a split agree, and nodes on different sides do not.
func TestDisagreementsOfSides(t *testing.T) {
	c := started(t, 6, sim.Options{})
	one, other := ids(6)[:3], ids(6)[3:]
	c.Split(one, other)
	for _, side := range [][]string{one, other} {
		c.await(fmt.Sprint(side, " agree"), 2*ttl, func() bool { return len(c.Disagreements(side...)) == 0 })
	}
	for _, nodes := range [][]string{nil, {"n00", "n01", "n02", "n03"}, {"n00", "n01"}} {
		if len(c.Disagreements(nodes...)) == 0 {
			t.Errorf("%v agree, in two sides of three nodes", nodes)
		}
	}
}
