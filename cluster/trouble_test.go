package cluster_test

import (
	"bytes"
	"context"
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

// Within MaxSkew, but near it: the node is ready like any other.
func TestClockNearLimit(t *testing.T) { // S3.3
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		c.StartWith("fast", clustertest.WithClockOffset(4700*time.Millisecond))
		c.WaitAgreed(3 * time.Second)
	})
}

// A node that its clock keeps from owning anything still tells who does.
func TestFencedNodePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		a := c.StartWith("fast", clustertest.WithClockOffset(7*time.Second))
		time.Sleep(3 * time.Second)
		c.Start(ids(3)...)
		time.Sleep(30 * time.Second)
		c.Crash("n00")
		time.Sleep(time.Minute)
		for i := range 1000 {
			key := fmt.Sprint("room-", i)
			got, err := a.Place(key)
			want, _ := c.Agent("n01").Place(key)
			if err != nil || got.ID != want.ID {
				t.Fatalf("it places %s on %v (%v), the others on %s", key, got, err, want.ID)
			}
		}
		if n := a.Snapshot().Stats.Fences; n != 1 || len(a.Owned()) > 0 {
			t.Errorf("fenced itself %d times, owns %d", n, len(a.Owned()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Drain(ctx); err != nil {
			t.Errorf("Drain of a node that owns nothing: %v", err)
		}
	})
}

// A program that has news all the time puts heartbeats forward. What is done with
// each of them must not wait: this node would own for ever what others own, too.
func TestFenceOfABusyNode(t *testing.T) { // S3.3
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		a := c.StartWith("fast", clustertest.WithClockOffset(7*time.Second))
		time.Sleep(3 * time.Second)
		c.Start(ids(3)...)
		for i := range uint32(40) {
			if err := a.SetWeight(100 + i%2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		if n := a.Snapshot().Stats.Fences; n != 1 || len(a.Owned()) > 0 {
			t.Errorf("after a minute it fenced itself %d times, and owns %d", n, len(a.Owned()))
		}
	})
}

// A host is suspended with the whole fleet on it: nobody may take everything
// and give most of it back.
func TestAllPaused(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		begin := make(map[string]int)
		for _, id := range c.IDs() {
			begin[id] = len(c.Batches(id))
			c.Pause(id)
		}
		time.Sleep(30 * time.Second)
		for _, id := range c.IDs() {
			c.Resume(id)
		}
		t.Logf("%d nodes: agreement %v after all were stopped", len(c.IDs()), c.WaitAgreed(5*time.Second))
		for _, id := range c.IDs() {
			acquired := 0
			for _, b := range c.Batches(id)[begin[id]:] {
				acquired += len(b.Acquired)
			}
			if own := len(c.Agent(id).Owned()); acquired > 2*own+10 {
				t.Errorf("%s owns %d but acquired %d on the way", id, own, acquired)
			}
		}
	})
}

// One seed of eleven answers; the others take connections and say nothing.
func TestDeadSeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 11, clustertest.Options{})
		var seeds []string
		for _, id := range c.IDs() {
			seeds = append(seeds, c.Agent(id).Addr())
		}
		for _, id := range c.IDs()[1:] {
			c.Pause(id)
		}
		time.Sleep(20 * time.Second)
		begin := time.Now()
		a := c.StartWith("new", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Join = seeds }))
		if n := len(a.Members()); n != 2 {
			t.Errorf("Start returned with %d members known after %v: it did not find the live seed", n, time.Since(begin))
		}
		for _, id := range c.IDs()[1:] {
			if id != "new" {
				c.Resume(id)
			}
		}
	})
}

// A stop may land anywhere, for instance while a table is computed.
func TestStopInMidTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		stop := false
		a := c.StartWith("x", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Strategy = stopper{cfg.WithDefaults().Strategy, func() {
				if stop {
					stop = false
					time.Sleep(10 * time.Second)
				}
			}}
		}))
		c.WaitAgreed(3 * time.Second)
		stop = true
		c.Crash("n00") // has everybody compute a table
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			if len(a.Owned()) > 500 {
				t.Fatalf("owns %d partitions: more than its share of three", len(a.Owned()))
			}
		}
		c.WaitAgreed(3 * time.Second)
		if n := a.Snapshot().Stats.Fences; n != 1 {
			t.Errorf("fenced itself %d times", n)
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

// A farewell reaches all by itself: nobody waits for the lease to run out.
func TestFarewellReachesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 25, clustertest.Options{})
		for _, id := range ids(8) {
			c.Leave(id)
			c.WaitAgreed(time.Second)
		}
	})
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

// TestChaos puts a cluster through arbitrary trouble, then lets it be.
func TestChaos(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() || underRace {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 8, clustertest.Options{Seed: seed, Jitter: 10 * time.Millisecond})
				x := &chaos{c: c, rng: rand.New(rand.NewPCG(seed, 7)), begin: time.Now()}
				t.Cleanup(func() {
					if t.Failed() {
						t.Log(strings.Join(x.log, "\n"))
					}
				})
				for range 40 {
					x.step(t)
					time.Sleep(time.Duration(x.rng.IntN(8000)) * time.Millisecond)
				}
				x.end(t)
			})
		})
	}
}

// chaos is what has been done to a cluster.
type chaos struct {
	c      *clustertest.Cluster
	rng    *rand.Rand
	begin  time.Time
	paused []string
	dead   []string
	log    []string
}

func (x *chaos) say(what string, args ...any) {
	x.log = append(x.log, fmt.Sprint(time.Since(x.begin), " ", what, " ", args))
}

// running returns a random node that runs, and whether there are enough to
// spare it.
func (x *chaos) running() (id string, spare bool) {
	live := slices.DeleteFunc(x.c.IDs(), func(id string) bool { return slices.Contains(x.paused, id) })
	return live[x.rng.IntN(len(live))], len(live) > 4
}

func (x *chaos) step(t *testing.T) {
	id, spare := x.running()
	switch op := x.rng.IntN(11); {
	case op == 0 && spare:
		x.say("crash", id)
		x.c.Crash(id)
		x.dead = append(x.dead, id)
	case op == 1 && spare:
		x.say("leave", id)
		x.c.Leave(id)
		x.dead = append(x.dead, id)
	case op == 2 && len(x.dead) > 0:
		x.say("start", x.dead[0])
		x.c.Start(x.dead[0])
		x.dead = x.dead[1:]
	case op == 3:
		x.say("restart", id)
		x.c.Restart(id)
	case op == 4 && spare:
		x.say("pause", id)
		x.c.Pause(id)
		x.paused = append(x.paused, id)
	case op == 5 && len(x.paused) > 0:
		x.say("resume", x.paused[0])
		x.c.Resume(x.paused[0])
		x.paused = x.paused[1:]
	case op == 6:
		all := x.c.IDs()
		k := 1 + x.rng.IntN(len(all)-1)
		x.say("split", all[:k], all[k:])
		x.c.Split(all[:k], all[k:])
	case op == 7:
		x.say("heal")
		x.c.Heal()
	case op == 8:
		x.say("drain", id)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = x.c.Agent(id).Drain(ctx) // in a split, not all can agree
	case op == 9:
		weight := uint32(x.rng.IntN(4)) * 100
		x.say("weight", id, weight)
		_ = x.c.Agent(id).SetWeight(weight)
	case op == 10:
		loss := float64(x.rng.IntN(3)) * 0.1
		x.say("loss", loss)
		x.c.SetLoss(loss)
	}
}

// end stops all trouble; the cluster has to come to rest by itself.
func (x *chaos) end(t *testing.T) {
	x.say("end")
	x.c.Heal()
	x.c.SetLoss(0)
	for _, id := range x.paused {
		x.c.Resume(id)
	}
	x.c.Start("last") // whose seeds are all that run, so that no split outlives its reasons
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, id := range x.c.IDs() {
		_ = x.c.Agent(id).SetWeight(100)
		if err := x.c.Agent(id).Undrain(ctx); err != nil {
			t.Errorf("undrain %s: %v", id, err)
		}
	}
	x.c.WaitAgreed(30 * time.Second)
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
			if n := strings.Count(out.out.String(), "no seed answered; continuing alone"); n != 2 {
				t.Errorf("said %d times that no seed answered, want 2", n)
			}
		})
	}
}
