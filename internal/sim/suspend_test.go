package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// suspension is a scenario in which some nodes of a fleet are suspended with their hosts.
type suspension struct {
	name  string
	nodes int
	sleep int // how many of them are suspended
	loss  float64
	opts  sim.Options
}

func suspensions() []suspension {
	majority := sim.Options{Config: func(cfg *node.Config) { cfg.SplitForget = time.Hour }}
	least := sim.Options{Config: func(cfg *node.Config) { cfg.MinMembers = 2 }}
	handoff := func() sim.Options {
		return sim.Options{
			Config:   func(cfg *node.Config) { cfg.Handoff = 10 * time.Second },
			Handlers: &sim.Handlers{Stop: func(*sim.Process) time.Duration { return 0 }},
		}
	}
	return []suspension{
		{"one of two", 2, 1, 0, sim.Options{}},
		{"one of two, loss 5 %", 2, 1, 0.05, sim.Options{}},
		{"one of two, loss 20 %", 2, 1, 0.2, sim.Options{}},
		{"one of three", 3, 1, 0, sim.Options{}},
		{"one of three, loss 20 %", 3, 1, 0.2, sim.Options{}},
		{"two of three", 3, 2, 0, sim.Options{}},
		{"one of ten", 10, 1, 0, sim.Options{}},
		{"half of ten", 10, 5, 0, sim.Options{}},
		{"half of ten, loss 20 %", 10, 5, 0.2, sim.Options{}},
		{"nine of ten", 10, 9, 0, sim.Options{}},
		{"one of five, split policy", 5, 1, 0, majority},
		{"half of ten, at least two members", 10, 5, 0, least},
		{"one of three, handoff", 3, 1, 0, handoff()},
	}
}

// wake continues suspended nodes, and returns when partitions last had two owners.
func (c fleet) wake(asleep []string, stale bool, watch time.Duration) (double time.Duration) {
	all := c.IDs()
	for _, id := range asleep {
		c.Wake(id, stale)
	}
	for at := time.Duration(0); at < watch; at += 10 * time.Millisecond {
		if c.shared(all) {
			double = at
		}
		c.Run(10 * time.Millisecond)
	}
	return double
}

// shared reports whether two nodes own the same partition.
func (c fleet) shared(ids []string) bool {
	owned := make(map[int]bool)
	for _, id := range ids {
		for _, p := range c.Node(id).Owned() {
			if owned[int(p)] {
				return true
			}
			owned[int(p)] = true
		}
	}
	return false
}

// A node is suspended, and its monotonic clock stands still. A second after it continues, it owns nothing that other
// nodes have taken over. If most packets and answers are lost, this may take a little longer.
func TestSuspended(t *testing.T) {
	times, seeds := []time.Duration{90 * time.Second}, uint64(1)
	if *long {
		times, seeds = append(times, 5*time.Minute, time.Hour, 24*time.Hour), 6
	}
	for _, d := range times {
		for _, stale := range []bool{false, true} {
			var longest time.Duration
			for _, s := range suspensions() {
				if d > time.Hour && s.nodes > 3 {
					continue
				}
				for seed := range seeds {
					s.opts.Seed, s.opts.Loss = seed, s.loss
					c := newFleet(t, s.opts)
					c.Start(ids(s.nodes)...)
					c.Run(10*time.Second + time.Duration(seed)*317*time.Millisecond)
					asleep := ids(s.nodes)[:s.sleep]
					for _, id := range asleep {
						c.Suspend(id)
					}
					c.Run(d)
					double := c.wake(asleep, stale, 10*time.Second)
					if longest = max(longest, double); double > time.Second {
						t.Errorf("%s, suspended for %v, stale wall clock %v, seed %d: two owners for %v", s.name, d, stale, seed, double)
					}
				}
			}
			t.Logf("suspended for %v, stale wall clock %v: two owners for %v at most", d, stale, longest)
		}
	}
}

// Setting a wall clock forward or back moves no partition, even if all clocks are set simultaneously.
func TestWallClockStepsCostNothing(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		c := started(t, n, sim.Options{})
		c.Run(ttl)
		r := c.record()
		for _, by := range []time.Duration{2 * time.Second, -2 * time.Second, time.Hour} {
			for _, id := range c.IDs() {
				c.Node(id).StepClock(by)
			}
			c.Run(2 * ttl)
		}
		for _, id := range c.IDs() {
			if len(r.batches(id)) > 0 || c.Node(id).View().Stats.Fences > 0 {
				t.Errorf("%d nodes: %s published %d changes", n, id, len(r.batches(id)))
			}
		}
	}
}

// While one node is suspended, all other nodes restart and found a cluster with another identity. A second after the
// suspended node continues, it owns nothing that another node owns. If its wall clock is right, the two clusters then
// become one.
func TestSuspendedWhileOthersRestart(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, stale := range []bool{false, true} {
			for seed := range uint64(4) {
				c := newFleet(t, sim.Options{Seed: seed})
				all := ids(n)
				var addrs []string
				for i := range all {
					addrs = append(addrs, c.NextAddr(i))
				}
				for _, id := range all {
					c.StartWith(id, sim.Setup{Seeds: addrs})
				}
				c.Run(20 * time.Second)
				c.Suspend(all[0])
				c.Run(time.Minute)
				for i, id := range all[1:] {
					c.Crash(id)
					c.StartWith(id, sim.Setup{Addr: addrs[i+1], Seeds: addrs})
				}
				c.Run(30*time.Second + time.Duration(seed)*30*time.Second)
				if double := c.wake(all[:1], stale, 20*time.Second); double > time.Second {
					t.Errorf("%d nodes, stale wall clock %v, seed %d: two owners for %v", n, stale, seed, double)
				}
				if !stale { // of two nodes, the node with the later clock is considered wrong
					c.agree(20 * time.Second)
				}
			}
		}
	}
}
