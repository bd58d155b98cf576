package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
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

// inClusters runs a scenario in a bubble with a small and a larger cluster.
func inClusters(t *testing.T, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	for _, n := range []int{3, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenario(t, started(t, n, clustertest.Options{})) })
		})
	}
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

func fromN01(m placement.Move) bool { return m.From == "n01" }

// A leave is known to all within a second, lost packets or not: no lease has to expire.
func TestLeave(t *testing.T) { // S3.9
	for _, loss := range []float64{0, 0.2} {
		inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
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
			onlyMoved(t, before, c, fromN01)
		})
	}
}

// A split of three minutes heals by itself: memberlist does not rejoin, the agents do.
func TestSplitAndHeal(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		all := c.IDs()
		third := max(1, len(all)/3)
		c.Split(all[:third], all[third:])
		time.Sleep(3 * time.Minute)
		if got := len(c.Agent(all[0]).Members()); got != third {
			t.Fatalf("one side sees %d members, has %d", got, third)
		}
		c.Heal()
		c.WaitAgreed(20 * time.Second)
	})
}

func TestPausedNode(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		a := c.Agent("n01")
		mine := a.Owned()
		c.Pause("n01")
		time.Sleep(ttl + time.Second)
		if a.Live() {
			t.Fatal("live although its lease expired")
		}
		for _, p := range mine {
			if a.Owns(p) {
				t.Fatalf("owns partition %d although its lease expired", p)
			}
		}
		time.Sleep(3 * time.Second)
		c.Resume("n01")
		c.WaitAgreed(3 * time.Second)
		if a.Snapshot().Stats.Fences != 1 || !a.Live() {
			t.Errorf("fenced itself %d times, live: %v", a.Snapshot().Stats.Fences, a.Live())
		}
	})
}

// A node that its clock keeps from owning anything has nothing to wait for.
func TestDrainOfAClockFencedNode(t *testing.T) { // S3.3
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

func TestDrainAndUndrain(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		a, before := c.Agent("n01"), tableOf(c)
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(a.Owned()); n != 0 {
			t.Errorf("owns %d partitions after Drain", n)
		}
		c.Check()
		onlyMoved(t, before, c, fromN01)
		if err := a.Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitAgreed(time.Second)
		onlyMoved(t, before, c, func(placement.Move) bool { return false })
	})
}

func TestDuplicateID(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		older := c.Agent("n01")
		c.Start("n01")
		select {
		case <-older.Done():
		case <-time.After(2 * ttl):
			t.Fatal("the older process goes on")
		}
		dup, ok := errors.AsType[*cluster.DuplicateIDError](older.Err())
		if !ok || dup.ID != "n01" || dup.Other != c.Agent("n01").Addr() {
			t.Errorf("the older process stopped with %v", older.Err())
		}
		if older.IsOwner("x") || len(older.Owned()) != 0 {
			t.Error("the older process still owns something")
		}
		c.WaitAgreed(ttl)
	})
}

func TestLoadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{})
		load := func() int64 {
			members := c.Agent("n00").Members()
			return members[slices.IndexFunc(members, func(m *cluster.Member) bool { return m.ID == "n01" })].Load
		}
		if got := load(); got != lease.NoLoad {
			t.Errorf("load %d before any was reported, want %d", got, lease.NoLoad)
		}
		for _, units := range []int64{0, 2450, -5} {
			c.Agent("n01").SetLoad(units)
			time.Sleep(5 * time.Second)
			if got := load(); got != max(0, units) {
				t.Errorf("load %d after SetLoad(%d)", got, units)
			}
		}
	})
}

// An assignment that is larger than any packet reaches a newcomer, by a stream, before
// the newcomer takes part.
func TestLargeAssignment(t *testing.T) { // S2.4
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
	})
}

// The strategy of a user panics when a fourth node joins. The agents keep the last good
// table; the newcomer, which never had one, says that it is not ready.
func TestStrategyFails(t *testing.T) { // S2.1, S4.6
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		c := started(t, 3, clustertest.Options{Log: log.handler(), Config: func(cfg *cluster.Config) {
			cfg.Strategy = brittle{cfg.WithDefaults().Strategy}
		}})
		before := tableOf(c)
		c.Start("n03")
		time.Sleep(time.Minute)
		for _, id := range ids(3) {
			a := c.Agent(id)
			if _, err := a.Place("room"); err != nil || len(a.Owned()) == 0 {
				t.Errorf("%s places nothing (%v) or owns nothing", id, err)
			}
			if !strings.Contains(log.String(), "no such zone") {
				t.Errorf("the log does not have the reason: %s", log.String())
			}
		}
		onlyMoved(t, before, c, func(placement.Move) bool { return false })
		if _, err := c.Agent("n03").Place("room"); !errors.Is(err, cluster.ErrNotReady) {
			t.Errorf("the newcomer places: %v", err)
		}
	})
}

// brittle is a strategy that panics beyond three nodes.
type brittle struct{ placement.Strategy }

func (brittle) Name() string { return "brittle" }

func (b brittle) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if len(nodes) > 3 {
		panic("no such zone")
	}
	return b.Strategy.Assign(nodes, partitions)
}
