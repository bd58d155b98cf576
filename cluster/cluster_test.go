package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// The tests in this file run agents over memberlist, in virtual time. They test joins, streams and the methods of an
// Agent. The tests in internal/sim check what a node decides. Clusters stay small because the race detector crashes on
// large bubbles (golang/go#78156).

const ttl = 6 * time.Second

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%02d", i)
	}
	return all
}

// started starts n nodes together, and returns the cluster when they agree.
func started(t *testing.T, n int, opts clustertest.Options) *clustertest.Cluster {
	t.Helper()
	c := clustertest.New(t, opts)
	c.Start(ids(n)...)
	c.WaitAgreed(3 * time.Second)
	return c
}

// inCluster runs a scenario with five nodes in a synctest bubble.
func inCluster(t *testing.T, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { scenario(t, started(t, 5, clustertest.Options{})) })
}

// onlyMoved fails the test if a partition has moved and the function may returns false for the move.
func onlyMoved(t *testing.T, before *placement.Table, c *clustertest.Cluster, may func(placement.Move) bool) {
	t.Helper()
	for _, m := range placement.Diff(before, tableOf(c)).Moves {
		if !may(m) {
			t.Fatalf("partition %d moved from %s to %s", m.Partition, m.From, m.To)
		}
	}
}

func tableOf(c *clustertest.Cluster) *placement.Table { return c.Agent(c.IDs()[0]).Snapshot().Table }

// All nodes learn within half a lease that a member leaves, even if packets are lost.
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
			c.Crash("n01") // c must know that it ended
			c.WaitAgreed(time.Second)
			onlyMoved(t, before, c, func(m placement.Move) bool { return m.From == "n01" })
		})
	}
}

// After a split of three minutes, the sides find each other again. memberlist does not rejoin by itself, so the agents
// do it.
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

// If a node owns nothing because of its clock, Drain returns without waiting.
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

// Member.Drains says since when a node drains. Other nodes count from when they received the drain.
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
		time.Sleep(2 * time.Minute)
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
		time.Sleep(time.Second) // no table contained the node yet, so Drain did not wait
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

// An assignment that is too large for a packet reaches a new node over a stream before the node becomes active.
func TestLargeAssignment(t *testing.T) {
	const partitions = 4096
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy, cfg.Partitions = placement.LeastPartitions(1, partitions/8), partitions
		}})
		time.Sleep(time.Minute) // from now on, the moves per pass are limited
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

// stopper is a strategy that calls hook before it assigns.
type stopper struct {
	placement.Strategy
	hook func()
}

func (s stopper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	s.hook()
	return s.Strategy.Assign(nodes, partitions)
}

// Other nodes can decode everything that Validate accepts.
func TestLongestRecord(t *testing.T) {
	cfg := local("b")
	cfg.Zone = strings.Repeat("z", lease.MaxZoneBytes)
	cfg.APIAddr = strings.Repeat("a", lease.MaxAddrBytes)
	cfg.Labels = make(map[string]string)
	for i := range lease.MaxLabels {
		longer := local("b")
		longer.Zone, longer.APIAddr, longer.Labels = cfg.Zone, cfg.APIAddr, make(map[string]string)
		for k := range i {
			longer.Labels[fmt.Sprintf("%064d", k)] = strings.Repeat("v", lease.MaxLabelBytes)
		}
		if longer.Validate() != nil {
			break
		}
		cfg = longer
	}
	a := startAgent(t, local("a"))
	cfg.Join = []string{a.Addr()}
	b := startAgent(t, cfg)
	waitReady(t, a, b)
}

// Agents survive random problems over memberlist. internal/sim tests more of them.
func TestChaos(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 6, clustertest.Options{Seed: seed, Jitter: 10 * time.Millisecond})
				rng := rand.New(rand.NewPCG(seed, 7))
				for range 20 {
					trouble(t, c, rng)
					time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
				}
				c.Heal()
				for _, id := range c.IDs() {
					c.Resume(id)
				}
				c.Start("last") // its seeds are nodes on all sides, so it ends any split
				for _, id := range c.IDs() {
					if err := errors.Join(c.Agent(id).SetWeight(100), c.Agent(id).Undrain(t.Context())); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
				c.WaitAgreed(30 * time.Second)
			})
		})
	}
}

// trouble causes one random problem at a random node. A paused node resumes when it is chosen for another problem.
func trouble(t *testing.T, c *clustertest.Cluster, rng *rand.Rand) {
	t.Helper()
	all := c.IDs()
	id := all[rng.IntN(len(all))]
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in a split, the members cannot agree
	defer cancel()
	op := rng.IntN(7)
	if op != 6 {
		c.Resume(id)
	}
	switch op {
	case 0:
		c.Restart(id)
	case 1:
		c.Split(all[:len(all)/2], all[len(all)/2:])
	case 2:
		c.Heal()
	case 3:
		_ = c.Agent(id).Drain(ctx)
	case 4:
		_ = c.Agent(id).SetWeight(uint32(rng.IntN(4)) * 100)
	case 5:
		c.SetLoss(float64(rng.IntN(3)) * 0.1)
	case 6:
		c.Pause(id)
	}
}

// In a split with SplitMajority, the larger side owns everything, and the smaller side says why it owns nothing.
func TestSplitMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Split = cluster.SplitMajority }})
		time.Sleep(30 * time.Second)
		c.Split([]string{"n00"}, []string{"n01", "n02"})
		time.Sleep(2 * ttl)
		few, many := c.Agent("n00"), c.Agent("n01")
		s := few.Snapshot()
		h, _ := s.Held(cluster.CauseIsolated)
		if s.Phase != cluster.PhaseIsolated || len(few.Owned()) > 0 || !strings.Contains(h.Reason, "1 of 3 voters") {
			t.Errorf("the one is %v, owns %d partitions: %v", s.Phase, len(few.Owned()), s.Holds)
		}
		n := len(many.Owned()) + len(c.Agent("n02").Owned())
		if n != placement.DefaultPartitions || len(many.Snapshot().Holds) > 0 {
			t.Errorf("the two own %d partitions: %v", n, many.Snapshot().Holds)
		}
		c.Heal()
		c.WaitAgreed(30 * time.Second)
	})
}
