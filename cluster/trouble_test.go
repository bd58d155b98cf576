package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// stopper is a strategy that calls hook before it assigns.
type stopper struct {
	placement.Strategy
	hook func()
}

func (s stopper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	s.hook()
	return s.Strategy.Assign(nodes, partitions)
}

// What Validate accepts, others can decode.
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

// The caller may wipe its secrets.
func TestKeyIsCopied(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	start := func(id string, seeds ...string) *cluster.Agent {
		cfg := local(id, seeds...)
		cfg.Key = bytes.Clone(key)
		a := startAgent(t, cfg)
		clear(cfg.Key)
		return a
	}
	a := start("a")
	b := start("b", a.Addr())
	c := start("c", a.Addr())
	waitReady(t, a, b, c)
}

// Agents go through arbitrary trouble over memberlist. internal/sim has more of it.
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
				c.Start("last") // its seeds are nodes of all sides: no split outlives its reasons
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

// trouble does one thing to a random node. A pause ends with the next trouble of its node.
func trouble(t *testing.T, c *clustertest.Cluster, rng *rand.Rand) {
	t.Helper()
	all := c.IDs()
	id := all[rng.IntN(len(all))]
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in a split, not all can agree
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

// Nobody answers, at the start and after a fence: the node says so, and goes on
// alone. Time and again, since it once depended on which of two came first.
func TestNoSeedAnswers(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var out logbook
			c := clustertest.New(t, clustertest.Options{
				Log:    out.handler(),
				Config: func(cfg *cluster.Config) { cfg.Join = []string{"10.9.9.9:7946"} },
			})
			c.Start("n00")
			c.WaitAgreed(20 * time.Second)
			c.Pause("n00")
			time.Sleep(2 * ttl)
			c.Resume("n00")
			time.Sleep(20 * time.Second)
			if !c.Agent("n00").IsOwner("x") {
				t.Error("it owns nothing after a fence")
			}
			if n := strings.Count(out.String(), "no seed answered; continuing alone"); n != 2 {
				t.Errorf("said %d times that no seed answered, want 2", n)
			}
		})
	}
}

// In a split one side owns under SplitMajority, and the other says why it does not.
func TestSplitMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Split = cluster.SplitMajority }})
		time.Sleep(30 * time.Second)
		c.Split([]string{"n00"}, []string{"n01", "n02"})
		time.Sleep(2 * ttl)
		few, many := c.Agent("n00"), c.Agent("n01")
		s := few.Snapshot()
		if h, _ := s.Held(cluster.CauseIsolated); s.Phase != cluster.PhaseIsolated || len(few.Owned()) > 0 || !strings.Contains(h.Reason, "1 of 3 voters") {
			t.Errorf("the one is %v, owns %d partitions: %v", s.Phase, len(few.Owned()), s.Holds)
		}
		if n := len(many.Owned()) + len(c.Agent("n02").Owned()); n != placement.DefaultPartitions || len(many.Snapshot().Holds) > 0 {
			t.Errorf("the two own %d partitions: %v", n, many.Snapshot().Holds)
		}
		c.Heal()
		c.WaitAgreed(30 * time.Second)
	})
}
