package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// A slow start of 90 s has a step every 10 s.
const (
	slowStart     = 90 * time.Second
	slowStartStep = slowStart / 9
)

func slowStarting(s placement.Strategy) sim.Options {
	return sim.Options{Config: func(c *node.Config) { c.SlowStart, c.Strategy = slowStart, s }}
}

// weightOf returns the weight of id, and fails if two nodes disagree about it.
func (c fleet) weightOf(id string) uint32 {
	c.t.Helper()
	weight := c.member(c.IDs()[0], id).Weight
	for _, at := range c.IDs() {
		if w := c.member(at, id).Weight; w != weight {
			c.t.Fatalf("%s says that %s has weight %d, others say %d", at, id, w, weight)
		}
	}
	return weight
}

func TestSlowStart(t *testing.T) {
	for _, strategy := range []placement.Strategy{placement.Rendezvous(), placement.VnodeRing()} {
		t.Run(strategy.Name(), func(t *testing.T) {
			c := started(t, 5, slowStarting(strategy))
			r := c.record()
			c.Start("new")
			c.Run(time.Second)
			for step := uint32(1); step <= 10; step++ {
				c.check()
				if w := c.weightOf("new"); w != 10*step {
					t.Fatalf("step %d: weight %d", step, w)
				}
				if r.stop(toNew) == 0 {
					t.Fatalf("step %d: nothing moved", step)
				}
				r = c.record()
				c.Run(slowStartStep)
			}
			c.check()
			for _, n := range c.Node("n00").View().Table.Nodes() {
				if n.Weight != 100 {
					t.Errorf("after the slow start, the table has %s with weight %d", n.ID, n.Weight)
				}
			}
			c.Run(2 * slowStart)
			r.stop(nothing)
		})
	}
}

// If all nodes start together, there is no slow start, because no other node could own the partitions in the meantime.
func TestNoSlowStartOnColdStart(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		c := started(t, n, slowStarting(placement.Rendezvous()))
		r := c.record()
		c.Run(slowStartStep)
		r.stop(nothing)
		for _, id := range c.IDs() {
			if w := c.weightOf(id); w != 100 {
				t.Errorf("%s has weight %d", id, w)
			}
		}
	}
}

func throughNew(m move) bool { return m.from == "new" || m.to == "new" }

// Some events end a slow start, and some begin another slow start.
func TestSlowStartInterrupted(t *testing.T) {
	for name, s := range map[string]struct {
		do     func(c fleet, p *sim.Process)
		may    func(move) bool
		weight uint32 // afterwards
		later  uint32 // a step later
		last   uint32 // after the duration of another slow start
	}{
		"another weight": {
			do:  func(_ fleet, p *sim.Process) { p.SetWeight(200) },
			may: toNew, weight: 200, later: 200, last: 200,
		},
		"a lower weight": {
			do:  func(_ fleet, p *sim.Process) { p.SetWeight(5) },
			may: from("new"), weight: 5, later: 5, last: 5,
		},
		"no weight": {
			do:  func(_ fleet, p *sim.Process) { p.SetWeight(0) },
			may: from("new"), weight: 0, later: 0, last: 0,
		},
		"drain": {
			do:  func(c fleet, _ *sim.Process) { c.drain("new") },
			may: from("new"), weight: 30, later: 30, last: 30,
		},
		"drain and undrain": {
			do: func(c fleet, _ *sim.Process) {
				c.drain("new")
				r := c.record()
				c.undrain("new")
				c.Run(2 * time.Second)
				r.stop(toNew) // it never had more than the share of its first step
			},
			may: throughNew, weight: 10, later: 20, last: 100,
		},
		"another weight while drained": {
			do: func(c fleet, p *sim.Process) {
				c.drain("new")
				p.SetWeight(200)
				c.undrain("new")
			},
			may: throughNew, weight: 20, later: 40, last: 200,
		},
		"fence": {
			do: func(c fleet, _ *sim.Process) {
				c.Pause("new")
				c.Run(2 * ttl)
				c.Resume("new")
				c.agree(3 * time.Second)
			},
			may: throughNew, weight: 10, later: 20, last: 100,
		},
		"restart": {
			do:  func(c fleet, _ *sim.Process) { c.Restart("new"); c.agree(3 * time.Second) },
			may: throughNew, weight: 10, later: 20, last: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := started(t, 5, slowStarting(placement.Rendezvous()))
			c.Start("new")
			c.Run(2*slowStartStep + time.Second)
			if w := c.weightOf("new"); w != 30 {
				t.Fatalf("weight %d in the third step", w)
			}
			r := c.record()
			s.do(c, c.Node("new"))
			c.Run(2 * time.Second)
			for _, at := range []struct {
				wait time.Duration
				want uint32
			}{{0, s.weight}, {slowStartStep, s.later}, {slowStart, s.last}} {
				c.Run(at.wait)
				c.check()
				if w := c.weightOf("new"); w != at.want {
					t.Errorf("weight %d, want %d", w, at.want)
				}
			}
			r.stop(s.may)
		})
	}
}

func TestLeaveDuringSlowStart(t *testing.T) {
	c := started(t, 5, slowStarting(placement.Rendezvous()))
	before := c.Owners()
	c.Start("new")
	c.Run(2*slowStartStep + time.Second)
	r := c.record()
	c.Leave("new")
	c.agree(time.Second)
	c.Run(2 * slowStart)
	c.check()
	r.stop(from("new"))
	c.onlyMoved(before, nothing)
}

// A node has no slow start if it takes over from no other node, or only from draining nodes. The rest of an earlier
// slow start is then forgotten.
func TestNoSlowStartWithoutOthers(t *testing.T) {
	c := started(t, 3, slowStarting(placement.Rendezvous()))
	for _, id := range c.IDs() {
		c.drain(id)
	}
	c.undrain("n00")
	c.undrain("n01")
	c.agree(time.Second)
	if w0, w1 := c.weightOf("n00"), c.weightOf("n01"); w0 != 100 || w1 != 10 {
		t.Errorf("weights %d of the first that undrains, and %d of the second", w0, w1)
	}
	c.drain("n00")
	c.drain("n01")
	c.undrain("n01")
	c.agree(time.Second)
	if w := c.weightOf("n01"); w != 100 {
		t.Errorf("weight %d of the only owner", w)
	}
}

// Each step happens on time, even if nothing else happens.
func TestSlowStartIsOnTime(t *testing.T) {
	c := started(t, 1, slowStarting(placement.Rendezvous()))
	p := c.StartWith("new", sim.Setup{Config: func(c *node.Config) { c.GossipInterval = time.Minute }})
	c.await("the slow start begins", 3*time.Second, func() bool { return c.member("new", "new").Weight == 10 && p.Live() })
	c.Run(100 * time.Millisecond)
	for step := uint32(2); step <= 10; step++ {
		c.Run(slowStartStep)
		if w := c.member("new", "new").Weight; w != 10*step {
			t.Errorf("weight %d in step %d", w, step)
		}
	}
}
