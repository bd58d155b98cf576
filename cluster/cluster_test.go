package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// The tests of this file run agents over memberlist, in virtual time: they are about
// joins, streams and the calls of an Agent. What a node decides is tested in
// internal/sim. Clusters stay small: the race detector crashes on large bubbles
// (golang/go#78156).

const ttl = 6 * time.Second

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%02d", i)
	}
	return all
}

// started returns a cluster of n nodes, started together and in agreement.
func started(t *testing.T, n int, opts clustertest.Options) *clustertest.Cluster {
	t.Helper()
	c := clustertest.New(t, opts)
	c.Start(ids(n)...)
	c.WaitAgreed(3 * time.Second)
	return c
}

// inCluster runs a scenario in a bubble with five nodes.
func inCluster(t *testing.T, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { scenario(t, started(t, 5, clustertest.Options{})) })
}

// onlyMoved fails the test if a partition moved that may not.
func onlyMoved(t *testing.T, before *placement.Table, c *clustertest.Cluster, may func(placement.Move) bool) {
	t.Helper()
	for _, m := range placement.Diff(before, tableOf(c)).Moves {
		if !may(m) {
			t.Fatalf("partition %d moved from %s to %s", m.Partition, m.From, m.To)
		}
	}
}

func tableOf(c *clustertest.Cluster) *placement.Table { return c.Agent(c.IDs()[0]).Snapshot().Table }

// A leave is known to all within a second, lost packets or not: no lease has to expire.
func TestLeave(t *testing.T) {
	for _, loss := range []float64{0, 0.2} {
		inCluster(t, func(t *testing.T, c *clustertest.Cluster) {
			c.SetLoss(loss)
			before, leaver := tableOf(c), c.Agent("n01")
			go func() { _ = leaver.Leave(context.Background()) }()
			begin := time.Now()
			for leaves := false; !leaves; {
				leaves = !slices.ContainsFunc(c.IDs(), func(id string) bool { return id != "n01" && sees(c, id, "n01") })
				if time.Since(begin) > ttl/2 {
					t.Fatalf("a node still sees the leaver after %v", time.Since(begin))
				}
				time.Sleep(10 * time.Millisecond)
			}
			<-leaver.Done()
			c.Crash("n01") // for the book-keeping
			c.WaitAgreed(time.Second)
			onlyMoved(t, before, c, func(m placement.Move) bool { return m.From == "n01" })
		})
	}
}

// A split of three minutes heals by itself: memberlist does not rejoin, the agents do.
func TestSplitAndHeal(t *testing.T) {
	inCluster(t, func(t *testing.T, c *clustertest.Cluster) {
		all := c.IDs()
		c.Split(all[:2], all[2:])
		time.Sleep(3 * time.Minute)
		if got := len(c.Agent(all[0]).Members()); got != 2 {
			t.Fatalf("the side of two sees %d members", got)
		}
		c.Heal()
		c.WaitAgreed(20 * time.Second)
	})
}

// A node that its clock keeps from owning anything has nothing to wait for.
func TestDrainOfAClockFencedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		a := c.StartWith("fast", clustertest.WithClockOffset(7*time.Second))
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Drain(ctx); err != nil || len(a.Owned()) != 0 {
			t.Errorf("Drain: %v; owns %d partitions", err, len(a.Owned()))
		}
	})
}

// A drain shows since when: at the node itself, and at another node since that saw it.
func TestDrainsSince(t *testing.T) {
	inCluster(t, func(t *testing.T, c *clustertest.Cluster) {
		drains := func(at string) time.Time {
			m, _ := c.Agent(at).Member("n01")
			return m.Drains
		}
		began := time.Now()
		if err := c.Agent("n01").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for _, at := range []string{"n01", "n02"} {
			if since := drains(at).Sub(began); since < 0 || since > time.Second {
				t.Errorf("%s says that n01 drains since %v after the drain", at, since)
			}
		}
		if other, _ := c.Agent("n01").Member("n02"); !other.Drains.IsZero() {
			t.Error("another node drains")
		}
		c.Restart("n01")
		c.WaitAgreed(20 * time.Second)
		if at := drains("n02"); !at.IsZero() {
			t.Errorf("it drains since %v after a restart", at)
		}
		if err := c.Agent("n01").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // no table had the node yet, so its drain had nothing to wait for
		if time.Since(drains("n02")) > time.Minute {
			t.Errorf("it drains since %v, which is the former drain", drains("n02"))
		}
		if err := c.Agent("n01").Undrain(t.Context()); err != nil || !drains("n01").IsZero() || !drains("n02").IsZero() {
			t.Errorf("it drains after undrain: %v", err)
		}
	})
}

func TestDuplicateID(t *testing.T) {
	inCluster(t, func(t *testing.T, c *clustertest.Cluster) {
		older := c.Agent("n01")
		c.Start("n01")
		select {
		case <-older.Done():
		case <-time.After(2 * ttl):
			t.Fatal("the older process goes on")
		}
		dup, ok := errors.AsType[*cluster.DuplicateIDError](older.Err())
		if !ok || dup.ID != "n01" || dup.Addr != older.Addr() || dup.Other != c.Agent("n01").Addr() {
			t.Errorf("the older process stopped with %v", older.Err())
		}
		if older.IsOwner("x") || len(older.Owned()) != 0 {
			t.Error("the older process still owns something")
		}
		c.WaitAgreed(ttl)
	})
}

// An assignment that is larger than any packet reaches a newcomer, by a stream, before
// the newcomer takes part.
func TestLargeAssignment(t *testing.T) {
	const partitions = 4096
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy, cfg.Partitions = placement.LeastPartitions(1, partitions/8), partitions
		}})
		time.Sleep(time.Minute) // from now on, passes are limited
		before := tableOf(c)
		c.Start("new")
		for begin := time.Now(); len(c.Agent("new").Owned()) < partitions/6; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("the newcomer has %d after 30 s", len(c.Agent("new").Owned()))
			}
		}
		c.WaitAgreed(time.Second)
		onlyMoved(t, before, c, func(m placement.Move) bool { return m.To == "new" })
		if moved := len(c.Agent("new").Owned()); moved > partitions/6+1 {
			t.Errorf("%d partitions moved", moved)
		}
	})
}
