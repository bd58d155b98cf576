package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// A link that is cut in one direction lets packets through in the other.
func TestOneWayCut(t *testing.T) {
	c := started(t, 2, sim.Options{})
	c.Cut("n00", "n01")
	if c.Reaches("n00", "n01") || !c.Reaches("n01", "n00") {
		t.Error("the cut is not one of n00 to n01 alone")
	}
	c.Run(ttl + 2*time.Second) // n01 has dropped n00, which still has a lease of n01
	if c.sees("n01", "n00") || !c.sees("n00", "n01") {
		t.Errorf("n01 sees n00: %v, n00 sees n01: %v", c.sees("n01", "n00"), c.sees("n00", "n01"))
	}
	c.Heal()
	c.agree(20 * time.Second)
}

// The others miss a host that loses all outgoing packets. A host that loses all incoming
// ones joins again.
func TestLossOfANode(t *testing.T) {
	c := started(t, 5, sim.Options{})
	c.SetLossOf("n01", 1, 0)
	c.await("n01 is missed", ttl+time.Second, func() bool { return !c.sees("n00", "n01") })
	c.SetLossOf("n01", 0, 0)
	c.agree(20 * time.Second)
	c.SetLossOf("n01", 0, 1)
	c.await("n01 joins again", ttl+time.Second, func() bool { return c.Node("n01").View().Phase == node.Joining })
	c.SetLossOf("n01", 0, 0)
	c.agree(20 * time.Second)

	r := c.record()
	c.SetLossOf("n02", 0.3, 0.3)
	c.Run(5 * time.Minute)
	for _, id := range c.IDs() {
		if left := r.left(id); len(left) > 0 {
			t.Errorf("at a loss of 30 %% of one host, %s published that %v left", id, left)
		}
	}
}

// A step of a wall clock moves nothing while the clock stays within MaxSkew, and no lease
// ends by it. Beyond that the node is fenced until its clock is right.
func TestStepClock(t *testing.T) { // S3.3
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
			if more := len(c.Node(id).Batches()) - r.seen[id]; more != 0 {
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

// A step of all wall clocks by an hour moves nothing: each is compared with their median.
func TestStepAllClocks(t *testing.T) { // S3.3
	inFleets(t, func(t *testing.T, c fleet) {
		r := c.record()
		for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
			for _, id := range c.IDs() {
				c.Node(id).StepClock(by)
			}
			c.Run(20 * time.Second)
		}
		for _, id := range c.IDs() {
			if more := len(c.Node(id).Batches()) - r.seen[id]; more != 0 || c.Node(id).View().Stats.Fences != 0 {
				t.Errorf("%s published %d changes, and fenced itself %d times", id, more, c.Node(id).View().Stats.Fences)
			}
		}
	})
}

// An exchange that is reset ends at once, and merges nothing. The next one succeeds.
func TestResetStreams(t *testing.T) {
	var log logbook
	c := newFleet(t, sim.Options{Delay: 100 * time.Millisecond, Log: log.write})
	c.Start("n00")
	c.agree(20 * time.Second)
	p := c.StartWith("n01", sim.Setup{})
	c.Run(150 * time.Millisecond)
	c.ResetStreams("n00")
	c.Run(250 * time.Millisecond)
	if len(c.Node("n00").Members()) != 1 || p.View().Phase != node.Joining {
		t.Errorf("n00 sees %v, n01 is %v", c.Node("n00").Members(), p.View().Phase)
	}
	c.agree(5 * time.Second)
	if len(log.find("no seed answered")) > 0 {
		t.Error("n01 was alone")
	}
}

// A process that restarts on its host replaces the old one, and receives the packets that
// are on their way to it.
func TestRestartInPlace(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		before := c.Owners()
		addr := c.Node("n01").Addr
		c.Crash("n01")
		c.Run(300 * time.Millisecond)
		if p := c.StartWith("n01", sim.Setup{Addr: addr}); p.Addr != addr {
			t.Fatalf("n01 is at %s, was at %s", p.Addr, addr)
		}
		t.Logf("agreement %v after the start", c.agree(3*time.Second))
		c.onlyMoved(before, nothing)
		if next := c.NextAddr(0); slices.ContainsFunc(c.IDs(), func(id string) bool { return c.Node(id).Addr == next }) {
			t.Errorf("the next address is %s, which is taken", next)
		}
	})
}

// A farewell without a drain ends the lease of the node at all others at once.
func TestFarewell(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		p := c.Node("n01")
		c.Farewell("n01")
		t.Logf("agreement %v after the farewell", c.agree(time.Second))
		c.Run(2 * time.Second)
		sent := p.Sent()
		c.Run(ttl)
		if c.check(); p.Sent() != sent {
			t.Error("n01 still sends")
		}
	})
}
