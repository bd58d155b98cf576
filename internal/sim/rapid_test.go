package sim_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

var rapidNodes = flag.Int("rapid", 30, "how many nodes the scenarios of Rapid have")

// These are the scenarios in which Suresh et al., "Stable and Consistent Membership at Scale with Rapid" (USENIX ATC
// 2018) compare membership services: nodes that crash together, a node whose packets are lost, and a node that only
// hears the others part of the time.

// Ten nodes that crash simultaneously cause one or two new tables, not ten.
func TestRapidCrashes(t *testing.T) {
	c := startedRapid(t, nil)
	c.Run(10 * time.Second)
	r := c.record()
	c.Crash(c.IDs()[20:30]...)
	took := c.agree(2 * ttl)
	tables, _ := r.tables()
	t.Logf("| %d nodes, 10 crash at once | %d tables, agreed after %.1f s |", *rapidNodes, tables, took.Seconds())
	if tables > 2 {
		t.Errorf("%d tables on the way", tables)
	}
}

// A node that loses most of its packets does not keep leaving and returning.
func TestRapidLossOfASender(t *testing.T) {
	for _, loss := range []float64{0.8, 0.95} {
		c := startedRapid(t, nil)
		r := c.record()
		c.SetLossOf("n07", loss, 0)
		double := c.watchDouble(5 * time.Minute)
		flips := r.flips("n07")
		c.SetLossOf("n07", 0, 0)
		took := c.agree(time.Minute)
		t.Logf("| %d nodes, %.0f %% of the packets of one are lost for 5 minutes | %s, double owners in %.0f %% of the time, agreed %.1f s after the end |",
			*rapidNodes, 100*loss, flips, 100*double, took.Seconds())
		if loss < 0.9 && (flips.most > 0 || double > 0) {
			t.Errorf("at a loss of %v: %v, double owners in %v of the time", loss, flips, double)
		}
	}
}

// Five times, a node hears no other node for 20 s, and then hears them again for 20 s. By default, it takes over all
// partitions each time. With a split policy, it is isolated instead.
func TestRapidDeafNode(t *testing.T) {
	for policy, most := range map[string]float64{"continue": 0.45, "majority": 0.02} {
		forget := time.Duration(0)
		if policy == "majority" {
			forget = 10 * time.Minute
		}
		c := startedRapid(t, func(cfg *node.Config) { cfg.SplitForget = forget })
		r := c.record()
		double := 0.0
		for range 5 {
			for _, id := range c.IDs() {
				if id != "n07" {
					c.Cut(id, "n07")
				}
			}
			double += c.watchDouble(20*time.Second) / 10
			c.Heal()
			double += c.watchDouble(20*time.Second) / 10
		}
		took := c.agree(time.Minute)
		flips := r.flips("n07")
		t.Logf("| %d nodes, --split %s, one hears no other for 20 s in 40, five times | %s, double owners in %.1f %% of the time, agreed %.1f s after the end |",
			*rapidNodes, policy, flips, 100*double, took.Seconds())
		if flips.most > 12+*rapidNodes/50 || double > most {
			t.Errorf("%s: %s, double owners in %v of the time", policy, flips, double)
		}
	}
}

func startedRapid(t *testing.T, change func(*node.Config)) fleet {
	t.Helper()
	c := newFleet(t, sim.Options{Seed: 1, Jitter: 2 * time.Millisecond, Config: change})
	c.Start(ids(*rapidNodes)...)
	c.agree(6 * time.Second)
	c.Run(ttl)
	return c
}

// flips is how often other nodes published that a node left or joined: the smallest and the largest count of any node.
type flips struct{ least, most int }

func (f flips) String() string { return fmt.Sprintf("%d to %d flips", f.least, f.most) }

func (r recording) flips(id string) flips {
	var counts []int
	for _, at := range r.c.IDs() {
		if at == id {
			continue
		}
		count := 0
		for _, all := range [][]lease.NodeID{r.left(at), r.joined(at)} {
			for _, other := range all {
				if string(other) == id {
					count++
				}
			}
		}
		counts = append(counts, count)
	}
	return flips{slices.Min(counts), slices.Max(counts)}
}

// watchDouble lets time pass, and returns the share of this time in which a partition had two owners.
func (c fleet) watchDouble(d time.Duration) float64 {
	const look = 100 * time.Millisecond
	looks, double := 0, 0
	for range d / look {
		c.Run(look)
		owned := 0
		for _, id := range c.IDs() {
			owned += len(c.Node(id).Owned())
		}
		if looks++; owned > placement.DefaultPartitions {
			double++
		}
	}
	return float64(double) / float64(looks)
}
