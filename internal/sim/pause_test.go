package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// A node that was paused for less than its lease finds its socket full of heartbeats. It reads all of them before it
// lets a lease expire.
func TestShortPause(t *testing.T) {
	const pauses = 20
	inFleets(t, func(t *testing.T, c fleet) {
		for i := range time.Duration(pauses) { // sometimes its own lease is still valid when it continues, but another lease is not
			pause := 4*time.Second + i*2*time.Second/pauses
			c.Run(5*time.Second + i*173*time.Millisecond)
			r := c.record()
			c.Pause("n01")
			c.Run(pause)
			c.Resume("n01")
			c.agree(3 * time.Second)
			if left := r.left("n01"); len(left) > 0 {
				t.Errorf("after a pause of %v, it published that %v left", pause, left)
			}
		}
	})
}

// A node that is rejoining gets a command. It does not publish that all other nodes left just because it has not heard
// from them yet.
func TestDrainWhileRejoining(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		c.Pause("n01")
		c.Run(10 * time.Second)
		r := c.record()
		c.Resume("n01")
		c.Node("n01").Drain()
		c.agree(3 * time.Second)
		if left := r.left("n01"); len(left) > 0 {
			t.Errorf("published that %v left", left)
		}
	})
}

// A node died while another node was paused. The packets that waited for the paused node do not make it revive the dead
// node.
func TestPausedNodeRevivesNobody(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		c.Pause("n01")
		c.Run(3 * time.Second)
		c.Crash("n02")
		c.Run(2 * ttl)
		r := c.record()
		c.Resume("n01")
		c.agree(3 * time.Second)
		c.Run(2 * ttl)
		c.check()
		for _, id := range c.IDs() {
			for _, joined := range r.joined(id) {
				if joined == "n02" {
					t.Errorf("%s saw the dead n02 join again", id)
				}
			}
		}
	})
}

// All nodes are paused at the same time, for example because they run on one host that is suspended. Afterwards, no
// node takes over everything and gives most of it back.
func TestAllPaused(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		r := c.record()
		for _, id := range c.IDs() {
			c.Pause(id)
		}
		c.Run(30 * time.Second)
		for _, id := range c.IDs() {
			c.Resume(id)
		}
		t.Logf("%d nodes: agreement %v after a pause of all", len(c.IDs()), c.agree(5*time.Second))
		for _, id := range c.IDs() {
			if own := len(c.Node(id).Owned()); r.acquired(id) > 2*own+10 {
				t.Errorf("%s owns %d but acquired %d on the way", id, own, r.acquired(id))
			}
		}
	})
}

// A pause can begin at any instruction, for example while a table is computed.
func TestPauseWhilePlacing(t *testing.T) {
	c := started(t, 3, sim.Options{})
	stop := false
	p := c.StartWith("x", sim.Setup{Config: func(cfg *node.Config) {
		cfg.Strategy = stopper{cfg.Strategy, func() {
			if stop {
				stop = false
				c.Pause("x")
			}
		}}
	}})
	c.agree(3 * time.Second)
	published := len(p.Batches())
	stop = true
	c.Crash("n00") // every node computes a table
	c.await("x is paused", 2*ttl, func() bool { return !stop })
	c.Run(10 * time.Second)
	if len(p.Batches()) != published {
		t.Fatal("the pause did not interrupt the turn: x published the table")
	}
	c.Resume("x")
	for range 100 {
		c.Run(100 * time.Millisecond)
		if n := len(p.Owned()); n > 500 {
			t.Fatalf("owns %d partitions: more than its share of three", n)
		}
	}
	c.agree(3 * time.Second)
	if n := p.View().Stats.Fences; n != 1 {
		t.Errorf("fenced itself %d times", n)
	}
}

// stopper is a strategy that calls hook before it assigns.
type stopper struct {
	placement.Strategy
	hook func()
}

func (s stopper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	s.hook()
	return s.Strategy.Assign(nodes, partitions)
}

// Wall clocks differ by up to 8 s, which is more than MaxSkew. Each clock is compared with the median of all clocks, so
// no node is rejected and nothing changes.
func TestClockOffsets(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		c := newFleet(t, sim.Options{})
		offsets := []time.Duration{0, 4 * time.Second, -4 * time.Second}
		for i, id := range ids(n) {
			c.StartWith(id, sim.Setup{Clock: offsets[i%3]})
		}
		c.agree(3 * time.Second)
		r := c.record()
		c.Run(2 * time.Minute)
		c.check()
		for _, id := range c.IDs() {
			if more := len(r.batches(id)); more != 0 {
				t.Errorf("%s published %d changes while nothing changed", id, more)
			}
		}
	}
}

func TestClockAhead(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		p := c.StartWith("fast", sim.Setup{Clock: 7 * time.Second})
		c.Run(20 * time.Second)
		if n := len(p.Owned()); n > 0 {
			t.Errorf("a node with its clock 7 s ahead owns %d partitions", n)
		}
		rejected := uint64(0)
		for _, id := range c.IDs() {
			if id != "fast" && c.sees(id, "fast") {
				t.Errorf("%s accepts a node with its clock 7 s ahead", id)
			}
			rejected += c.Node(id).View().Stats.SkewRejected
		}
		if rejected == 0 {
			t.Error("no heartbeat is rejected")
		}
	})
}

// The only member has a fast clock. The first newcomer rejects the member's heartbeats, but it receives the member's
// packets, so it joins without delay and takes over.
func TestOnlyMemberHasClockAhead(t *testing.T) {
	for seed := range uint64(10) {
		c := newFleet(t, sim.Options{Seed: seed, Jitter: 2 * time.Millisecond})
		c.StartWith("fast", sim.Setup{Clock: 7 * time.Second, Bootstrap: true})
		c.Run(10 * time.Second)
		p := c.StartWith("n00", sim.Setup{})
		c.await("n00 owns all", time.Second, func() bool { return len(p.Owned()) == placement.DefaultPartitions })
		c.await("fast owns nothing", 2*time.Second, func() bool { return c.owned("fast") == 0 })
	}
}

// A node whose clock is ahead by almost MaxSkew becomes ready like any other node.
func TestClockNearLimit(t *testing.T) {
	c := started(t, 3, sim.Options{})
	c.StartWith("fast", sim.Setup{Clock: 4700 * time.Millisecond})
	c.agree(3 * time.Second)
}

// Frequent changes make a node send extra heartbeats. They must not delay the check of its clock, because the node
// would keep owning partitions that other nodes own, too.
func TestFenceOfABusyNode(t *testing.T) {
	c := newFleet(t, sim.Options{})
	p := c.StartWith("fast", sim.Setup{Clock: 7 * time.Second})
	c.Run(3 * time.Second)
	c.Start(ids(3)...)
	for i := range uint32(40) {
		p.SetWeight(100 + i%2)
		c.Run(1500 * time.Millisecond)
	}
	if n := p.View().Stats.Fences; n != 1 || len(p.Owned()) > 0 {
		t.Errorf("after a minute it fenced itself %d times, and owns %d", n, len(p.Owned()))
	}
}
