package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

func (c fleet) cordon(by, id string, d time.Duration) {
	c.t.Helper()
	if err := c.Node(by).Cordon(id, d); err != nil {
		c.t.Fatal(err)
	}
}

// knowCordoned reports whether all the given nodes know that exactly these nodes are cordoned.
func (c fleet) knowCordoned(nodes []string, cordoned ...string) bool {
	return !slices.ContainsFunc(nodes, func(id string) bool {
		var known []string
		for _, e := range c.Node(id).View().Live.Cordoned {
			known = append(known, string(e.ID))
		}
		return !slices.Equal(known, cordoned)
	})
}

// A cordon of one of 50 nodes works at 20 % packet loss: the node owns nothing within a second. When the cordon ends,
// the node's partitions return to it, at about the same moment at all nodes. Nothing else moves, and the node remains a
// member.
func TestCordon(t *testing.T) {
	for seed := range uint64(3) {
		c := started(t, 50, sim.Options{Seed: seed, Loss: 0.2})
		before := c.Owners()
		members := len(c.Node("n00").Members())
		const d = 10 * time.Second
		c.cordon("n31", "n07", d)
		begin := c.Elapsed()
		took := c.await("all know of the cordon", time.Second, func() bool { return c.knowCordoned(ids(50), "n07") })
		took += c.agree(time.Second - took)
		if owned := len(c.Node("n07").Owned()); owned > 0 {
			t.Errorf("the cordoned node owns %d partitions", owned)
		}
		c.onlyMoved(before, func(m move) bool { return m.from == "n07" })
		if moved := len(c.moved(before)); moved == 0 {
			t.Error("nothing has moved")
		}
		c.Run(begin + d - 10*time.Millisecond - c.Elapsed())
		c.check()
		if c.candidate("n07") {
			t.Error("the cordon ended early")
		}
		var first, last time.Duration
		for back := 0; back < 50; c.Run(10 * time.Millisecond) {
			back = 0
			for _, id := range c.IDs() {
				if _, owns := c.Node(id).View().Table.Balance().Counts["n07"]; owns {
					back++
				}
			}
			if back > 0 && first == 0 {
				first = c.Elapsed()
			}
			if last = c.Elapsed(); last > begin+d+2*time.Second {
				t.Fatal("the node is not back")
			}
		}
		t.Logf("seed %d: agreed after %v; back %v after the end, all within %v", seed, took, first-begin-d, last-first)
		if last-first > 50*time.Millisecond {
			t.Errorf("the last node followed %v after the first", last-first)
		}
		c.agree(time.Second)
		if moved := c.moved(before); len(moved) > 0 {
			t.Errorf("%d partitions are elsewhere than before", len(moved))
		}
		for _, id := range c.IDs() {
			for _, b := range c.Node(id).Batches()[1:] {
				if len(b.Left)+len(b.Joined) > 0 {
					t.Errorf("%s saw %v leave and %v join", id, b.Left, b.Joined)
				}
			}
		}
		if now := len(c.Node("n00").Members()); now != members {
			t.Errorf("%d members, before %d", now, members)
		}
	}
}

// A node that restarts while it is cordoned stays cordoned for members, for newcomers, and for itself from its first
// table on.
func TestCordonedNodeRestarts(t *testing.T) {
	c := started(t, 10, sim.Options{Seed: 1, Loss: 0.2})
	c.cordon("n03", "n07", 30*time.Second)
	c.agree(time.Second)
	c.Restart("n07")
	c.Start("n10")
	c.agree(2 * ttl)
	c.Run(10 * time.Second)
	c.check()
	if !c.knowCordoned(c.IDs(), "n07") || c.candidate("n07") {
		t.Error("the cordon is forgotten")
	}
	for _, b := range c.Node("n07").Batches() {
		if len(b.Acquired) > 0 {
			t.Errorf("the cordoned node acquired %d partitions", len(b.Acquired))
		}
	}
	c.Run(20 * time.Second)
	c.check()
	if !c.candidate("n07") {
		t.Error("the node is not back")
	}
}

// During a split, both sides start and cancel cordons. After the split, all nodes know the last decision about each
// node.
func TestCordonsInASplit(t *testing.T) {
	c := started(t, 20, sim.Options{Seed: 1, Loss: 0.2})
	all := ids(20)
	c.cordon("n00", "n01", 5*time.Minute)
	c.cordon("n00", "n02", 5*time.Minute)
	c.await("all know of the first cordons", time.Second, func() bool { return c.knowCordoned(all, "n01", "n02") })
	c.agree(time.Second)
	left, right := all[:10], all[10:]
	c.Split(left, right)
	c.Run(2 * ttl)
	c.cordon("n10", "n11", 5*time.Minute) // only one side knows the node
	c.cordon("n03", "n04", 5*time.Minute)
	c.cordon("n03", "n01", 0) // one side ends a cordon
	c.Run(time.Second)
	c.cordon("n05", "n02", 4*time.Minute) // it ends later than the other side decided
	c.Run(30 * time.Second)
	if !c.knowCordoned(left, "n02", "n04") || !c.knowCordoned(right, "n01", "n02", "n11") {
		t.Fatal("the sides do not hold their own cordons")
	}
	c.Heal()
	took := c.await("all nodes hold the last word on each", 30*time.Second, func() bool {
		return c.knowCordoned(all, "n02", "n04", "n11")
	})
	t.Logf("repaired %v after the heal", took)
	c.agree(2 * ttl)
	for _, id := range all {
		if owns := len(c.Node(id).Owned()) > 0; owns == slices.Contains([]string{"n02", "n04", "n11"}, id) {
			t.Errorf("%s owns %d partitions", id, len(c.Node(id).Owned()))
		}
	}
	c.Run(5 * time.Minute)
	c.check()
	if !c.knowCordoned(all) || c.owned(all...) != placement.DefaultPartitions {
		t.Error("a cordon has no end")
	}
}

// Twenty cordons do not fit into one packet. All 100 nodes learn about them nevertheless.
func TestManyCordons(t *testing.T) {
	c := started(t, 100, sim.Options{Seed: 1, Loss: 0.2})
	var cordoned []string
	for i := range 20 {
		id := fmt.Sprintf("n%d", 20+i)
		c.cordon(fmt.Sprintf("n%d", 70+i), id, time.Minute)
		cordoned = append(cordoned, id)
	}
	took := c.await("all know of the cordons", time.Second, func() bool { return c.knowCordoned(c.IDs(), cordoned...) })
	t.Logf("20 cordons at 100 nodes are known after %v", took)
	c.agree(time.Second)
	for _, id := range c.IDs() {
		if v := c.Node(id).View(); v.Stats.Expired > 0 {
			t.Errorf("%s expired %d leases", id, v.Stats.Expired)
		}
	}
}
