package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A ramp of 90 s takes a step every 10 s.
const (
	rampUp   = 90 * time.Second
	rampStep = rampUp / 9
)

func ramping(s placement.Strategy) clustertest.Options {
	return clustertest.Options{Config: func(c *cluster.Config) { c.RampUp, c.Strategy = rampUp, s }}
}

// weightOf returns what every node says that id weighs, and fails if they differ.
func weightOf(t *testing.T, c *clustertest.Cluster, id string) uint32 {
	t.Helper()
	var weight uint32
	for i, from := range c.IDs() {
		m, ok := findMember(c.Agent(from).Members(), lease.NodeID(id))
		if !ok || (i > 0 && m.Weight != weight) {
			t.Fatalf("%s: member %v with weight %d, others say %d", from, ok, m.Weight, weight)
		}
		weight = m.Weight
	}
	return weight
}

// ledger checks what every node tells its watchers from some moment on.
type ledger struct {
	c    *clustertest.Cluster
	seen map[string]int
}

func openLedger(c *clustertest.Cluster) *ledger {
	l := &ledger{c: c, seen: make(map[string]int)}
	for _, id := range c.IDs() {
		l.seen[id] = len(c.Batches(id))
	}
	return l
}

// close returns how many partitions moved, as n00 saw it, and fails
// if any did, in the eyes of any node, that may not.
func (l *ledger) close(t *testing.T, may func(from, to lease.NodeID) bool) (moved int) {
	t.Helper()
	for _, at := range l.c.IDs() {
		for _, b := range l.c.Batches(at)[l.seen[at]:] {
			for _, m := range b.Moved {
				if !may(m.From, m.To) {
					t.Fatalf("%s saw partition %d move from %s to %s", at, m.Partition, m.From, m.To)
				}
				if at == "n00" {
					moved++
				}
			}
		}
	}
	return moved
}

func to(id lease.NodeID) func(from, to lease.NodeID) bool {
	return func(_, to lease.NodeID) bool { return to == id }
}

func from(id lease.NodeID) func(from, to lease.NodeID) bool {
	return func(from, _ lease.NodeID) bool { return from == id }
}

func nothing(lease.NodeID, lease.NodeID) bool { return false }

func TestRampUp(t *testing.T) { // S4.3, S4.11
	for _, strategy := range []placement.Strategy{placement.Rendezvous(), placement.VnodeRing()} {
		t.Run(strategy.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 5, ramping(strategy))
				l := openLedger(c)
				c.Start("new")
				time.Sleep(time.Second)
				for step := uint32(1); step <= 10; step++ {
					c.Check()
					if w := weightOf(t, c, "new"); w != 10*step {
						t.Fatalf("step %d: weight %d", step, w)
					}
					if moved := l.close(t, to("new")); moved == 0 {
						t.Fatalf("step %d: nothing moved", step)
					}
					l = openLedger(c)
					time.Sleep(rampStep)
				}
				c.Check()
				for _, n := range c.Agent("n00").Snapshot().Table.Nodes() {
					if n.Weight != 100 {
						t.Errorf("after the ramp, the table has %s with weight %d", n.ID, n.Weight)
					}
				}
				time.Sleep(2 * rampUp)
				l.close(t, nothing)
			})
		})
	}
}

// Where all start together, there is nobody to carry what the new do not.
func TestNoRampTogether(t *testing.T) {
	for _, n := range sizes(t) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, n, ramping(nil))
				l := openLedger(c)
				time.Sleep(rampStep)
				l.close(t, nothing)
				for _, id := range c.IDs() {
					if w := weightOf(t, c, id); w != 100 {
						t.Errorf("%s has weight %d", id, w)
					}
				}
			})
		})
	}
}

// What ends a ramp, and what begins another one.
func TestRampInterrupted(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]struct {
		do     func(t *testing.T, c *clustertest.Cluster, a *cluster.Agent)
		may    func(from, to lease.NodeID) bool
		weight uint32 // afterwards
		later  uint32 // a step later
		last   uint32 // after another ramp's time
	}{
		"another weight": {
			do:  func(t *testing.T, _ *clustertest.Cluster, a *cluster.Agent) { must(t, a.SetWeight(200)) },
			may: to("new"), weight: 200, later: 200, last: 200,
		},
		"a lower weight": {
			do:  func(t *testing.T, _ *clustertest.Cluster, a *cluster.Agent) { must(t, a.SetWeight(5)) },
			may: from("new"), weight: 5, later: 5, last: 5,
		},
		"no weight": {
			do:  func(t *testing.T, _ *clustertest.Cluster, a *cluster.Agent) { must(t, a.SetWeight(0)) },
			may: from("new"), weight: 0, later: 0, last: 0,
		},
		"drain": {
			do:  func(t *testing.T, _ *clustertest.Cluster, a *cluster.Agent) { must(t, a.Drain(t.Context())) },
			may: from("new"), weight: 30, later: 30, last: 30,
		},
		"drain and undrain": {
			do: func(t *testing.T, c *clustertest.Cluster, a *cluster.Agent) {
				must(t, a.Drain(t.Context()))
				l := openLedger(c)
				must(t, a.Undrain(t.Context()))
				time.Sleep(2 * time.Second)
				l.close(t, to("new")) // never had more than its first share
			},
			may:    func(from, to lease.NodeID) bool { return from == "new" || to == "new" },
			weight: 10, later: 20, last: 100,
		},
		"another weight while drained": {
			do: func(t *testing.T, _ *clustertest.Cluster, a *cluster.Agent) {
				must(t, a.Drain(t.Context()))
				must(t, a.SetWeight(200))
				must(t, a.Undrain(t.Context()))
			},
			may:    func(from, to lease.NodeID) bool { return from == "new" || to == "new" },
			weight: 20, later: 40, last: 200,
		},
		"fence": {
			do: func(t *testing.T, c *clustertest.Cluster, _ *cluster.Agent) {
				c.Pause("new")
				time.Sleep(2 * ttl)
				c.Resume("new")
				c.WaitAgreed(3 * time.Second)
			},
			may:    func(from, to lease.NodeID) bool { return from == "new" || to == "new" },
			weight: 10, later: 20, last: 100,
		},
		"restart": {
			do: func(_ *testing.T, c *clustertest.Cluster, _ *cluster.Agent) {
				c.Restart("new")
				c.WaitAgreed(3 * time.Second)
			},
			may:    func(from, to lease.NodeID) bool { return from == "new" || to == "new" },
			weight: 10, later: 20, last: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 5, ramping(nil))
				c.Start("new")
				time.Sleep(2*rampStep + time.Second)
				if w := weightOf(t, c, "new"); w != 30 {
					t.Fatalf("weight %d in the third step", w)
				}
				l := openLedger(c)
				s.do(t, c, c.Agent("new"))
				time.Sleep(2 * time.Second)
				for _, at := range []struct {
					sleep time.Duration
					want  uint32
				}{{0, s.weight}, {rampStep, s.later}, {rampUp, s.last}} {
					time.Sleep(at.sleep)
					c.Check()
					if w := weightOf(t, c, "new"); w != at.want {
						t.Errorf("weight %d, want %d", w, at.want)
					}
				}
				l.close(t, s.may)
			})
		})
	}
}

func TestLeaveDuringRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, ramping(nil))
		before := owners(c)
		c.Start("new")
		time.Sleep(2*rampStep + time.Second)
		l := openLedger(c)
		c.Leave("new")
		c.WaitAgreed(time.Second)
		time.Sleep(2 * rampUp)
		c.Check()
		l.close(t, from("new"))
		for p, owner := range owners(c) {
			if owner != before[p] {
				t.Fatalf("partition %d went from %s to %s by a join and a leave", p, before[p], owner)
			}
		}
	})
}

// A node that takes over from nobody, or from nodes that drain, has no ramp, and
// what was left of an earlier one is forgotten.
func TestNoRampWithoutOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, ramping(nil))
		turn := func(change func(*cluster.Agent, context.Context) error, ids ...string) {
			t.Helper()
			for _, id := range ids {
				if err := change(c.Agent(id), t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c.WaitAgreed(time.Second)
		}
		drain, undrain := (*cluster.Agent).Drain, (*cluster.Agent).Undrain
		turn(drain, "n00", "n01", "n02")
		turn(undrain, "n00", "n01")
		if w0, w1 := weightOf(t, c, "n00"), weightOf(t, c, "n01"); w0 != 100 || w1 != 10 {
			t.Errorf("weights %d of the first that undrains, and %d of the second", w0, w1)
		}
		turn(drain, "n00", "n01")
		turn(undrain, "n01")
		if w := weightOf(t, c, "n01"); w != 100 {
			t.Errorf("weight %d of the only one that owns", w)
		}
	})
}

// A step does not wait for something else to happen.
func TestRampIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 1, ramping(nil))
		a := c.StartWith("new", clustertest.WithConfig(func(c *cluster.Config) { c.GossipInterval = time.Minute }))
		began := time.Now()
		for step := time.Duration(1); step < 10; step++ {
			time.Sleep(time.Until(began.Add(step*rampStep + 100*time.Millisecond)))
			if w := a.Snapshot().Self.Weight; w != uint32(10*(step+1)) {
				t.Errorf("weight %d after %v", w, step*rampStep)
			}
		}
	})
}

// A weight that is set moves partitions only to that node, or only from it.
func TestSetWeight(t *testing.T) { // S4.3
	for _, strategy := range []placement.Strategy{placement.Rendezvous(), placement.VnodeRing()} {
		t.Run(strategy.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 5, clustertest.Options{Config: func(c *cluster.Config) { c.Strategy = strategy }})
				last := uint32(100)
				for _, w := range []uint32{50, 10, 0, 10, 300, 100} {
					l := openLedger(c)
					if err := c.Agent("n01").SetWeight(w); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					c.Check()
					may := to("n01")
					if w < last {
						may = from("n01")
					}
					if l.close(t, may) == 0 {
						t.Errorf("weight %d after %d: nothing moved", w, last)
					}
					if owned := len(c.Agent("n01").Owned()); (owned == 0) != (w == 0) {
						t.Errorf("weight %d: owns %d partitions", w, owned)
					}
					last = w
				}
				if err := c.Agent("n01").SetWeight(lease.MaxWeight + 1); err == nil {
					t.Error("an absurd weight is accepted")
				}
			})
		})
	}
}

func TestRampUpFaults(t *testing.T) { // S3.18
	for rampUp, valid := range map[time.Duration]bool{
		0: true, 2500 * time.Millisecond: true, 24 * time.Hour: true,
		-time.Minute: false, 1: false, 2499 * time.Millisecond: false, 24*time.Hour + 1: false,
	} {
		err := cluster.Config{ID: "a", RampUp: rampUp}.Validate()
		if valid != (err == nil) || (err != nil && !strings.Contains(err.Error(), "RampUp is ")) {
			t.Errorf("RampUp %v: %v", rampUp, err)
		}
	}
}
