package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// switches records when each node got its first new table since the last reset.
type switches struct {
	c  *sim.Cluster
	at map[string]time.Duration
}

func newSwitches(opts sim.Options) *switches {
	s := new(switches)
	opts.Log = func(p *sim.Process, e node.Event) {
		if _, switched := s.at[p.ID]; e.Message == "ownership changed" && !switched {
			s.at[p.ID] = s.c.Elapsed()
		}
	}
	s.c = sim.New(opts)
	s.reset()
	return s
}

func (s *switches) reset() { s.at = make(map[string]time.Duration) }

// apart returns the times of the first and the last switch.
func (s *switches) apart() (first, last time.Duration) {
	first = time.Hour
	for _, at := range s.at {
		first, last = min(first, at), max(last, at)
	}
	return first, last
}

// clockError returns how far the nodes disagree on when the planned drain of one node begins.
func clockError(c *sim.Cluster, ids []string, of *sim.Process) time.Duration {
	least, most := time.Hour, -time.Hour
	for _, id := range ids {
		until := c.Node(id).UntilDrain(of)
		least, most = min(least, until), max(most, until)
	}
	return most - least
}

// A planned drain changes the tables of all nodes at the same moment, whatever their wall clocks show. The time between
// the first and the last switch is at most 5 ms plus the error of the cluster's clock. -long adds a cluster of 1,000
// nodes.
func TestPlannedDrain(t *testing.T) {
	t.Parallel()
	sizes := []int{3, 100}
	if *long {
		sizes = append(sizes, 1000)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := newSwitches(sim.Options{Seed: 1, Loss: 0.05, Jitter: 2 * time.Millisecond})
			c, all := s.c, ids(n)
			for i, id := range all {
				c.StartWith(id, sim.Setup{Clock: time.Duration(i%7) * 300 * time.Millisecond})
			}
			if _, err := c.Agree(time.Minute); err != nil {
				t.Fatal(err)
			}
			c.Run(10 * time.Second)
			for _, lead := range []time.Duration{2 * time.Second, 5 * time.Second} {
				leaver := c.Node(string(c.Owners()[0]))
				s.reset()
				planned := c.Elapsed() + lead
				leaver.DrainAt(leaver.Now().Add(lead))
				c.Run(lead - 50*time.Millisecond)
				if len(s.at) > 0 {
					t.Fatalf("%d nodes have switched before the moment", len(s.at))
				}
				apart := clockError(c, all, leaver)
				c.Run(2 * time.Second)
				first, last := s.apart()
				t.Logf("%d nodes, %v ahead: switched %v to %v after the moment, clock error %v", n, lead, first-planned, last-planned, apart)
				if len(s.at) != n || last-first > 5*time.Millisecond+apart {
					t.Errorf("%d of %d nodes have switched, within %v", len(s.at), n, last-first)
				}
				if first < planned-apart-5*time.Millisecond || len(leaver.Owned()) > 0 {
					t.Errorf("the first switch is %v after the moment, and the node owns %d partitions", first-planned, len(leaver.Owned()))
				}
				leaver.Undrain()
				c.Run(5 * time.Second)
				if len(leaver.Owned()) == 0 || len(c.Disagreements()) > 0 {
					t.Error("the node has not come back")
				}
			}
		})
	}
}

// Planned drains while nodes crash, join or restart.
func TestPlannedDrainInTrouble(t *testing.T) {
	const lead = 3 * time.Second
	for name, test := range map[string]struct {
		before func(c *sim.Cluster) // after the plan
		check  func(t *testing.T, c *sim.Cluster, s *switches, planned time.Duration)
	}{
		"a node hears of it late": {
			func(c *sim.Cluster) { c.Pause("n01"); c.Run(lead + time.Second); c.Resume("n01") },
			func(t *testing.T, c *sim.Cluster, s *switches, planned time.Duration) {
				if s.at["n02"]-planned > 10*time.Millisecond || s.at["n01"] < planned+time.Second || s.at["n01"] > planned+2*time.Second {
					t.Errorf("n02 switched %v, and n01 %v after the moment", s.at["n02"]-planned, s.at["n01"]-planned)
				}
			},
		},
		"the node crashes before": {
			func(c *sim.Cluster) { c.Run(time.Second); c.Crash("n00") },
			func(t *testing.T, c *sim.Cluster, s *switches, planned time.Duration) {
				if s.at["n01"] == 0 || s.at["n01"] > planned-time.Second {
					t.Errorf("n01 switched %v after the moment", s.at["n01"]-planned)
				}
			},
		},
		"the node comes back before": {
			func(c *sim.Cluster) {
				c.Run(time.Second / 2)
				c.Crash("n00")
				c.Run(time.Second)
				c.Start("n00")
				c.Run(10 * time.Second)
			},
			func(t *testing.T, c *sim.Cluster, _ *switches, _ time.Duration) {
				if len(c.Node("n00").Owned()) == 0 {
					t.Error("the new process drains")
				}
			},
		},
		"it is taken back": {
			func(c *sim.Cluster) { c.Run(time.Second); c.Node("n00").Undrain(); c.Run(10 * time.Second) },
			func(t *testing.T, c *sim.Cluster, s *switches, _ time.Duration) {
				if len(s.at) > 0 || len(c.Node("n00").Owned()) == 0 {
					t.Errorf("%d nodes have switched", len(s.at))
				}
			},
		},
		"the node drains before": {
			func(c *sim.Cluster) { c.Run(time.Second); c.Node("n00").Drain(); c.Run(10 * time.Second) },
			func(t *testing.T, c *sim.Cluster, s *switches, planned time.Duration) {
				if _, last := s.apart(); len(s.at) != 5 || last > planned-time.Second {
					t.Errorf("%d nodes have switched, the last one %v after the moment", len(s.at), last-planned)
				}
			},
		},
		"a node joins before": {
			func(c *sim.Cluster) { c.Start("n09"); c.Run(lead + time.Second) },
			func(t *testing.T, c *sim.Cluster, _ *switches, _ time.Duration) {
				if owned := c.Node("n00").Owned(); len(owned) > 0 || len(c.Disagreements()) > 0 || len(c.Node("n09").Owned()) == 0 {
					t.Errorf("the node that drains owns %d partitions, and the nodes do not agree: %v", len(owned), c.Disagreements())
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwitches(sim.Options{Seed: 1})
			c := s.c
			c.Start(ids(5)...)
			if _, err := c.Agree(time.Minute); err != nil {
				t.Fatal(err)
			}
			c.Run(10 * time.Second)
			s.reset()
			planned := c.Elapsed() + lead
			c.Node("n00").DrainAt(c.Node("n00").Now().Add(lead))
			test.before(c)
			c.Run(lead)
			test.check(t, c, s, planned)
		})
	}
}
