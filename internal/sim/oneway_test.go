package sim_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// All packets from a node are lost, or all packets to it, or both, but its streams work. The other nodes remove the
// node from their tables once. The node owns nothing, says why, and is back soon after the fault ends.
func TestOneWayNetwork(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 10, 40} {
		for what, lost := range map[string][2]float64{"out": {1, 0}, "in": {0, 1}, "both": {1, 1}} {
			for _, id := range []string{"n00", "n02"} {
				if n == 40 && (what != "in" && !*long || testing.Short() || id == "n00") {
					continue
				}
				t.Run(fmt.Sprint(n, what, id), func(t *testing.T) { oneWay(t, n, id, lost[0], lost[1]) })
			}
		}
	}
}

func oneWay(t *testing.T, n int, id string, out, in float64) {
	t.Helper()
	var lines logbook
	c := started(t, n, sim.Options{Seed: uint64(n), Jitter: 2 * time.Millisecond, Log: lines.write})
	c.Run(20 * time.Second)
	p, tables := c.Node(id), make(map[string]uint64)
	for _, other := range c.IDs() {
		tables[other] = c.Node(other).View().Stats.TableChanges
	}
	c.SetLossOf(id, out, in)
	most, twice := 0, time.Duration(0)
	for range 1800 {
		c.Run(100 * time.Millisecond)
		most = max(most, len(p.Owned()))
		if c.owned(c.IDs()...) > placement.DefaultPartitions {
			twice += 100 * time.Millisecond
		}
	}
	for _, other := range c.IDs() {
		if changes := c.Node(other).View().Stats.TableChanges - tables[other]; other != id && changes != 1 {
			t.Errorf("%s changed its table %d times", other, changes)
		}
	}
	if most > placement.DefaultPartitions/2 || len(p.Owned()) > 0 || twice > 500*time.Millisecond {
		t.Errorf("it owned up to %d partitions, owns %d in the end; partitions had two owners for %v", most, len(p.Owned()), twice)
	}
	suspect := "its advertised address " + p.Addr + "?"
	if in == 0 { // packets from other nodes arrive
		suspect = "packets of others arrive here"
	}
	if why := p.View().Waits; p.View().Phase != node.Joining || why == nil || !strings.Contains(why.Error(), suspect) {
		t.Errorf("it is %v and waits for %v", p.View().Phase, why)
	}
	if n := len(lines.find("node="+id, "level=4", "UDP")); n < 2 || n > 6 {
		t.Errorf("%d lines in three minutes say why", n)
	}
	names := func(want map[lease.NodeID]string) {
		t.Helper()
		for _, other := range c.IDs() {
			if silent := c.Node(other).View().StreamsAlone; other != id && !maps.Equal(silent, want) {
				t.Errorf("%s names %v as those that streams alone reach, want %v", other, silent, want)
			}
		}
	}
	names(map[lease.NodeID]string{lease.NodeID(id): p.Addr})
	c.SetLossOf(id, 0, 0)
	defer names(nil)
	t.Logf("two owners for %v; agreement %v after the end", twice, c.agree(10*time.Second))
}

// If UDP does not work between two nodes, the node with the smaller id owns everything.
func TestOneWayNetworkOfTwo(t *testing.T) {
	for what, lost := range map[string][2]float64{"out": {1, 0}, "in": {0, 1}, "both": {1, 1}} {
		t.Run(what, func(t *testing.T) {
			c := started(t, 2, sim.Options{})
			c.Run(20 * time.Second)
			c.SetLossOf("n00", lost[0], lost[1])
			c.await("n00 owns everything", 2*ttl, func() bool { return c.owned("n00") == placement.DefaultPartitions })
			for range 180 {
				c.Run(time.Second)
				if c.owned("n00") < placement.DefaultPartitions || c.owned("n01") > 0 {
					t.Fatalf("after %v n00 owns %d, n01 %d partitions", c.Elapsed(), c.owned("n00"), c.owned("n01"))
				}
			}
			c.SetLossOf("n00", 0, 0)
			c.agree(10 * time.Second)
		})
	}
}

// A member that restarts with a wrong advertised address stays out and says why, even if leases are shorter than the
// time between two attempts.
func TestWrongAdvertise(t *testing.T) {
	local := func(cfg *node.Config) {
		cfg.HeartbeatInterval, cfg.LeaseTTL, cfg.Debounce = 200*time.Millisecond, time.Second, 50*time.Millisecond
		cfg.StartupGrace, cfg.RejoinInterval, cfg.GossipInterval = 2*time.Second, time.Second, 20*time.Millisecond
	}
	for name, timings := range map[string]func(*node.Config){"lan": func(*node.Config) {}, "local": local} {
		t.Run(name, func(t *testing.T) {
			c := started(t, 5, sim.Options{Config: timings})
			c.Run(20 * time.Second)
			c.Crash("n03")
			c.Run(2 * ttl)
			r := c.record()
			wrong := "203.0.113.9:7946"
			p := c.StartWith("n03", sim.Setup{Config: func(cfg *node.Config) { cfg.Self.Addr = wrong }})
			most := 0
			for range 1200 {
				c.Run(100 * time.Millisecond)
				most = max(most, len(p.Owned()))
			}
			for _, id := range c.IDs() {
				if id != "n03" && len(r.batches(id)) > 0 {
					t.Errorf("%s published a change", id)
				}
			}
			seed := c.IDs()[0]
			if alone := c.Node(seed).View().StreamsAlone; len(alone) != 1 || alone["n03"] != wrong {
				t.Errorf("its seed %s names %v", seed, alone)
			}
			if v := p.View(); v.Phase != node.Joining || v.Waits == nil || !strings.Contains(v.Waits.Error(), wrong) || most > 0 {
				t.Errorf("it is %v, owned up to %d, and waits for %v", v.Phase, most, v.Waits)
			}
		})
	}
}

// A seed advertises an address at which no node can reach it. Newcomers that the seed reaches via streams do not own
// partitions that the seed also owns, and name the wrong address. This is also true for newcomers that reach each
// other, and for newcomers with smaller ids.
func TestSeedWithWrongAdvertise(t *testing.T) {
	for name, tt := range map[string]struct {
		seed   string
		mutual bool
	}{
		"lowest id": {"n00", false}, "highest id": {"n09", false}, "newcomers know each other": {"n00", true},
	} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				c := newFleet(t, sim.Options{Seed: seed, Jitter: time.Duration(seed) * 4 * time.Millisecond})
				wrongSeed(t, c, tt.seed, tt.mutual)
			})
		}
	}
}

func wrongSeed(t *testing.T, c fleet, seed string, mutual bool) {
	t.Helper()
	const wrong = "203.0.113.9:7946"
	first := c.StartWith(seed, sim.Setup{Bootstrap: true, Config: func(cfg *node.Config) { cfg.Self.Addr = wrong }})
	c.Run(5 * time.Second)
	seeds := []string{first.Addr}
	if mutual {
		seeds = append(seeds, "10.0.0.1:7946", "10.0.0.2:7946")
	}
	newcomers := []*sim.Process{c.StartWith("n01", sim.Setup{Seeds: seeds}), c.StartWith("n02", sim.Setup{Seeds: seeds})}
	for range 1200 {
		c.Run(100 * time.Millisecond)
		if owned := c.owned(c.IDs()...); owned != placement.DefaultPartitions || len(first.Owned()) != owned {
			t.Fatalf("after %v the seed owns %d, all own %d", c.Elapsed(), len(first.Owned()), owned)
		}
	}
	for _, p := range newcomers {
		if v := p.View(); v.Phase != node.Joining || v.Waits == nil || !strings.Contains(v.Waits.Error(), wrong) {
			t.Errorf("%s at %s is %v and waits for %v", p.ID, p.Addr, v.Phase, v.Waits)
		}
	}
	c.Crash(seed)
	c.StartWith(seed, sim.Setup{Bootstrap: true})
	c.agree(20 * time.Second)
}

// The network recovers at the moment when a node finds out that the others do not hear it. Just before, the node forgot
// all others. When it owns something again, it knows all of them.
func TestOneWayNetworkHeals(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	fenced := 0
	for seed := range seeds {
		c := started(t, 4, sim.Options{Seed: seed, Jitter: time.Duration(seed%4) * 40 * time.Millisecond})
		c.Run(20 * time.Second)
		p := c.Node("n03")
		c.SetLossOf("n03", 1, 0)
		c.await("n03 is fenced", 2*ttl, func() bool { return p.View().Phase == node.Joining })
		fenced++
		c.SetLossOf("n03", 0, 0)
		for range 100 {
			c.Run(50 * time.Millisecond)
			if owned := len(p.Owned()); owned > placement.DefaultPartitions/2 {
				t.Errorf("seed %d: n03 owns %d partitions with %d members", seed, owned, len(p.View().Live.Members))
				break
			}
		}
		c.agree(10 * time.Second)
	}
}

// A node that loses nine of ten packets in both directions is sometimes fenced. When it becomes active again, it sees
// at least half of the members, even if the first packets arrive late.
func TestLossyNodeEntersWithAll(t *testing.T) {
	entered := 0
	for seed := range uint64(8) {
		c := started(t, 12, sim.Options{Seed: seed, Jitter: 5 * time.Millisecond})
		c.Run(20 * time.Second)
		p := c.Node("n03")
		c.SetLossOf("n03", 0.9, 0.9)
		for was := p.View().Phase; c.Elapsed() < 3*time.Minute; was = p.View().Phase {
			c.Run(10 * time.Millisecond)
			if was != node.Joining || p.View().Phase == node.Joining {
				continue
			}
			if entered++; len(p.Members()) < 6 {
				t.Errorf("seed %d: after %v, n03 goes in with %v", seed, c.Elapsed(), p.Members())
			}
		}
	}
	if entered < 5 {
		t.Errorf("it went in %d times", entered)
	}
}
