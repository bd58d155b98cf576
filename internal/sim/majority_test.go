package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

const forget = time.Minute

func majority(seed uint64) sim.Options {
	return sim.Options{Seed: seed, Config: func(cfg *node.Config) { cfg.SplitForget = forget }}
}

// startedLongAgo returns n nodes that have been running long enough for their records of voters to count.
func startedLongAgo(t *testing.T, n int, opts sim.Options) fleet {
	t.Helper()
	c := started(t, n, opts)
	c.Run(2 * ttl)
	return c
}

// onlyOwns lets time pass, and fails the test if nodes outside a side own anything, or if the side does not own
// everything. If side is nil, no node may own anything.
func (c fleet) onlyOwns(side []string, d time.Duration) {
	c.t.Helper()
	for range d / (100 * time.Millisecond) {
		c.Run(100 * time.Millisecond)
		for _, id := range c.IDs() {
			if n := len(c.Node(id).Owned()); n > 0 && !slices.Contains(side, id) {
				c.t.Fatalf("%s owns %d partitions", id, n)
			}
		}
	}
	if n := c.owned(side...); len(side) > 0 && n != placement.DefaultPartitions {
		c.t.Fatalf("%d partitions have an owner", n)
	}
}

// In a split, the side with most members owns everything. Of two halves, this is the half with the smallest id. The
// other nodes keep their tables for lookups, and say why they own nothing. With a firewall that resets streams, it
// looks as if all processes of the other side had ended.
func TestMajority(t *testing.T) {
	all := ids(10)
	for name, tt := range map[string]struct {
		parts [][]string
		owner int // -1 = none
	}{
		"3 and 7":                     {[][]string{all[:3], all[3:]}, 1},
		"halves":                      {[][]string{all[:5], all[5:]}, 0},
		"halves, the smallest second": {[][]string{all[1:6], append([]string{all[0]}, all[6:]...)}, 1},
		"one node":                    {[][]string{all[:1], all[1:]}, 1},
		"6, 2 and 2":                  {[][]string{all[:6], all[6:8], all[8:]}, 0},
		"4, 3 and 3":                  {[][]string{all[:4], all[4:7], all[7:]}, -1},
	} {
		majoritySplits(t, name, func(t *testing.T, split func(fleet, ...[]string)) {
			c := startedLongAgo(t, 10, majority(10))
			before := c.Owners()
			split(c, tt.parts...)
			c.Run(ttl + time.Second)
			var side []string
			for i, part := range tt.parts {
				if i == tt.owner {
					side = part
					continue
				}
				c.isolated(part...)
				for _, id := range part {
					v := c.Node(id).View()
					if v.Table == nil || len(v.Holds) != 1 || v.Holds[0].Cause != node.CauseIsolated || !strings.Contains(v.Holds[0].Reason, "minority") {
						t.Fatalf("%s: table %v, holds %v", id, v.Table, v.Holds)
					}
				}
			}
			c.onlyOwns(side, forget/2)
			c.Heal()
			c.await("all are active", 20*time.Second, func() bool { return c.inPhase(node.Active, all...) })
			c.agree(3 * time.Second)
			if moved := c.moved(before); len(moved) > 0 {
				t.Errorf("%d partitions have other owners than before the split", len(moved))
			}
		})
	}
}

func majoritySplits(t *testing.T, name string, test func(t *testing.T, split func(fleet, ...[]string))) {
	t.Run(name, func(t *testing.T) { test(t, func(c fleet, parts ...[]string) { c.Split(parts...) }) })
	t.Run(name+", by resets", func(t *testing.T) { test(t, func(c fleet, parts ...[]string) { c.SplitByResets(parts...) }) })
}

// Hosts that vanish look like a split until they have been silent long enough to be forgotten.
func TestMajorityVanished(t *testing.T) {
	c := startedLongAgo(t, 10, majority(11))
	all := ids(10)
	c.Vanish(all[6:]...)
	c.await("six own everything", ttl+time.Second, func() bool { return c.owned(all[:6]...) == placement.DefaultPartitions })
	c.Vanish(all[4:6]...)
	c.Run(ttl + time.Second)
	c.isolated(all[:4]...)
	c.onlyOwns(nil, forget-2*ttl)
	t.Logf("the survivors own everything %v after that", c.agree(3*ttl))
	c.Vanish(all[3])
	c.agree(ttl + time.Second)
}

// Nodes that crash one after another are forgotten as long as most voters live, until only two nodes are left. This
// takes much less time than forgetting nodes that are just silent.
func TestMajorityCrashes(t *testing.T) {
	c := startedLongAgo(t, 10, majority(15))
	all := ids(10)
	for _, few := range [][]string{all[:3], all[3:6], {all[6]}, {all[7]}} {
		c.Crash(few...)
		t.Logf("agreement %v after the crash of %v", c.agree(ttl), few)
		c.Run(2*ttl + 2*time.Second)
	}
}

// Half of the processes end at the same moment. Until they run again, this looks like a split by a firewall that resets
// streams.
func TestMajorityMassCrash(t *testing.T) {
	for _, restart := range []bool{true, false} {
		c := startedLongAgo(t, 10, majority(16))
		all := ids(10)
		c.Crash(all[:5]...)
		c.Run(ttl + time.Second)
		c.isolated(all[5:]...)
		if restart {
			c.Start(all[:5]...)
			c.await("all are active", 20*time.Second, func() bool { return c.inPhase(node.Active, all...) })
			c.agree(ttl)
			continue
		}
		c.onlyOwns(nil, forget-2*ttl)
		t.Logf("the survivors own everything %v after that", c.agree(3*ttl))
	}
}

// A scale-in never loses the majority, because nodes that left with a leave message are not counted.
func TestMajorityScaleIn(t *testing.T) {
	c := startedLongAgo(t, 10, majority(12))
	all := ids(10)
	for _, id := range all[:5] { // the smallest ids
		c.Leave(id)
		c.agree(time.Second)
	}
	for _, id := range all[5:9] {
		c.LeaveAtOnce(id)
	}
	c.agree(time.Second)
	if n := c.owned(all[9]); n != placement.DefaultPartitions {
		t.Errorf("the last node owns %d partitions", n)
	}
}

// Nodes that were all restarted have no record of voters, so they start like a new cluster. If nodes restart one by
// one, with or without leave messages, the record is kept.
func TestMajorityRestarts(t *testing.T) {
	c := startedLongAgo(t, 5, majority(13))
	all := ids(5)
	for i, id := range all {
		if i%2 == 0 {
			c.Leave(id)
			c.Start(id)
		} else {
			c.Restart(id)
		}
		c.agree(2 * ttl)
	}
	c.Run(2 * ttl)
	c.Split(all[:2], all[2:])
	c.Run(ttl + time.Second)
	c.isolated(all[:2]...)
	c.onlyOwns(all[2:], ttl)
	c.Heal()
	c.await("all are active", 20*time.Second, func() bool { return c.inPhase(node.Active, all...) })
	c.Crash(all...)
	c.Start(all...)
	c.agree(3 * time.Second)
}

// Nodes that join during a split belong to the side that they joined, and vote once all nodes have met. The next split
// is decided by the new members, too.
func TestMajorityNewcomers(t *testing.T) {
	c := startedLongAgo(t, 5, majority(14))
	all := ids(12)
	few, many := all[:2], all[2:5]
	c.Split(few, many)
	c.Run(ttl + time.Second)
	join := func(side []string, seed string, newcomers ...string) []string {
		for _, id := range newcomers {
			c.StartWith(id, sim.Setup{Seeds: []string{c.Node(seed).Addr}})
			side = append(slices.Clone(side), id)
		}
		return side
	}
	few, many = join(few, all[1], all[5:8]...), join(many, all[4], all[8:]...)
	c.Split(few, many)
	c.Run(3 * time.Second)
	c.isolated(few...)
	c.onlyOwns(many, 3*ttl)
	c.Heal()
	c.await("all are active", 30*time.Second, func() bool { return c.inPhase(node.Active, all...) })
	c.agree(3 * time.Second)
	c.Run(2 * ttl)
	c.Split(all[:5], all[5:])
	c.Run(ttl + time.Second)
	c.isolated(all[:5]...)
	c.onlyOwns(all[5:], 3*ttl)
}

// The network is cut at different moments while nodes join. The two sides never own partitions at the same time.
func TestMajorityCutDuringJoins(t *testing.T) {
	delays := []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 8 * time.Second}
	if testing.Short() {
		delays = delays[2:4]
	}
	all := ids(7)
	for i, delay := range delays {
		for _, parts := range [][][]string{
			{{"n00", "n03", "n04", "n05", "n06"}, {"n01", "n02"}},
			{{"n00", "n01"}, {"n02", "n03", "n04", "n05", "n06"}},
			{{"n00", "n03", "n04"}, {"n01", "n02", "n05", "n06"}},
		} {
			c := startedLongAgo(t, 3, majority(uint64(20+i)))
			c.Start(all[3:]...)
			c.Run(delay)
			c.Split(parts...)
			c.Run(ttl + time.Second)
			for range 100 {
				c.Run(200 * time.Millisecond)
				if a, b := c.owned(parts[0]...), c.owned(parts[1]...); a > 0 && b > 0 {
					t.Fatalf("cut %v after the joins, %v: the sides own %d and %d partitions", delay, parts, a, b)
				}
			}
		}
	}
}

// Nodes restart in good order, one every few seconds, and another node is lost in the meantime. The remaining nodes
// have the majority, and continue.
func TestMajorityDuringRollingRestart(t *testing.T) {
	for _, fleetOf := range []struct{ nodes, restarted int }{{12, 7}, {5, 2}} {
		for lost, lose := range map[string]func(fleet, string){
			"host":   func(c fleet, id string) { c.Vanish(id) },
			"paused": func(c fleet, id string) { c.Pause(id) },
		} {
			c := startedLongAgo(t, fleetOf.nodes, majority(41))
			all := ids(fleetOf.nodes)
			for _, id := range all[:fleetOf.restarted] {
				c.Leave(id)
				c.Start(id)
				c.Run(4500 * time.Millisecond)
			}
			others, last := all[:len(all)-1], all[len(all)-1]
			lose(c, last)
			c.Run(2 * ttl)
			if n := c.owned(others...); n != placement.DefaultPartitions {
				v := c.Node(all[0]).View()
				t.Errorf("%d of %d nodes restarted, then one is lost (%s): the others own %d partitions; %v, %v",
					fleetOf.restarted, fleetOf.nodes, lost, n, v.Phase, v.Holds)
			}
		}
	}
}

// A member that restarted after an unconfirmed crash, and does not take part in placement yet, has no vote. It does not
// get a vote when other members join, either.
func TestMajorityWithoutTheIsolated(t *testing.T) {
	c := newFleet(t, majority(5))
	c.Start("a", "b", "c", "v")
	c.Run(4 * ttl)
	c.Vanish("v")
	c.Run(time.Second)
	c.StartWith("v", sim.Setup{Config: func(cfg *node.Config) { cfg.MinMembers = 9 }})
	c.Run(4 * ttl)
	c.Start("d")
	c.Run(5 * time.Second)
	c.Start("e")
	c.Run(5 * ttl)
	one, other := []string{"a", "b", "v"}, []string{"c", "d", "e"}
	c.Split(one, other)
	c.Run(2 * ttl)
	for range 10 {
		if c.Run(time.Second); c.owned(one...) > 0 && c.owned(other...) > 0 {
			t.Fatalf("the sides own %d and %d partitions", c.owned(one...), c.owned(other...))
		}
	}
}

// Processes crash one after another, and each is replaced by a node with a new id. The new node has a vote before the
// next crash, because at least two TTLs pass between two crashes.
func TestMajorityReplaced(t *testing.T) {
	for _, n := range []int{3, 5, 10} {
		for seed := range uint64(4) {
			c := startedLongAgo(t, n, majority(21+seed))
			for _, id := range ids(n) {
				c.Crash(id)
				c.Run(time.Second)
				c.Start("new-" + id)
				for range 110 {
					c.Run(100 * time.Millisecond)
					if c.owned(c.IDs()...) == 0 {
						t.Fatalf("seed %d: after the crash of %s of %d nodes nobody owns anything: %v", seed, id, n, c.Node(c.IDs()[0]).View().Holds)
					}
				}
			}
			c.agree(ttl)
		}
	}
}

// At different times after a crash, while the replacement is new, a firewall that resets streams cuts off a side. The
// two sides never own partitions at the same time.
func TestMajorityResetsAfterReplacement(t *testing.T) {
	delays := []time.Duration{
		0, 300 * time.Millisecond, 2 * time.Second, 4 * time.Second, 6 * time.Second, 7 * time.Second,
		8 * time.Second, 9 * time.Second, 11 * time.Second,
	}
	if testing.Short() {
		delays = delays[4:6]
	}
	all := append(ids(5)[1:], "new")
	for i, delay := range delays {
		for _, parts := range [][][]string{
			{{"n01", "n02"}, {"n03", "n04", "new"}},
			{{"n03", "n04"}, {"n01", "n02", "new"}},
			{{"n01", "new"}, {"n02", "n03", "n04"}},
			{{"n01"}, {"n02", "n03", "n04", "new"}},
		} {
			c := startedLongAgo(t, 5, majority(uint64(50+i)))
			c.Crash("n00")
			c.Run(500 * time.Millisecond)
			c.Start("new")
			c.Run(delay)
			c.SplitByResets(parts...)
			c.Run(ttl + time.Second)
			for range 200 {
				c.Run(100 * time.Millisecond)
				if a, b := c.owned(parts[0]...), c.owned(parts[1]...); a > 0 && b > 0 {
					t.Fatalf("cut %v after the replacement, %v: the sides own %d and %d partitions", delay, parts, a, b)
				}
			}
			c.Heal()
			c.await("all are active", 30*time.Second, func() bool { return c.inPhase(node.Active, all...) })
		}
	}
}
