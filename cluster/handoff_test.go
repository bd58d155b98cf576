package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fleet records which agents run which partitions.
type fleet struct {
	t  *testing.T
	mu sync.Mutex

	running map[placement.Partition][]string
}

// run calls RunOwned at an agent. Each run takes some time to end, as given by stop.
func (f *fleet) run(a *cluster.Agent, stop func(placement.Partition) time.Duration) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.RunOwned(f.t.Context(), func(ctx context.Context, p placement.Partition) {
			f.begin(a.Config().ID, p)
			defer f.end(p)
			<-ctx.Done()
			time.Sleep(stop(p))
		})
	}()
	return done
}

func (f *fleet) begin(id string, p placement.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = make(map[placement.Partition][]string)
	}
	f.running[p] = append(f.running[p], id)
	if len(f.running[p]) > 1 {
		f.t.Errorf("%v run partition %d at a time", f.running[p], p)
	}
}

// end removes the run of a partition. It assumes that the partition has only one run.
func (f *fleet) end(p placement.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[p] = f.running[p][1:]
}

func (f *fleet) runners(p placement.Partition) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.running[p], ",")
}

// complete reports whether each partition has exactly one run.
func (f *fleet) complete(partitions int) bool {
	for p := range partitions {
		if r := f.runners(placement.Partition(p)); r == "" || strings.Contains(r, ",") {
			return false
		}
	}
	return true
}

// TestHandoffOnSockets uses real sockets. While nodes join, drain, leave and change their weights, no partition may
// have two runs at the same time. After each change, every partition must have one run again.
func TestHandoffOnSockets(t *testing.T) {
	f := &fleet{t: t}
	stop := func(placement.Partition) time.Duration { return rand.N(50 * time.Millisecond) }
	const partitions = 64
	start := func(id string, seeds ...string) *cluster.Agent {
		cfg := local(id, seeds...)
		cfg.Partitions, cfg.Handoff, cfg.LeaseTTL = partitions, 10*time.Second, 5*time.Second // a busy machine must not end a lease
		a := startAgent(t, cfg)
		ended := f.run(a, stop)
		t.Cleanup(func() { _ = a.Close(); <-ended })
		return a
	}
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		eventually(t, "each partition runs after: "+what, func() bool { return f.complete(partitions) })
	}
	a := start("a")
	b, c := start("b", a.Addr()), start("c", a.Addr())
	waitReady(t, a, b, c)
	step("the start", nil)
	d := start("d", a.Addr())
	waitReady(t, a, b, c, d)
	step("d joins", nil)
	step("b drains", b.Drain(t.Context()))
	step("c weighs more", c.SetWeight(300))
	step("b is back", b.Undrain(t.Context()))
	step("a leaves", a.Leave(t.Context()))
}

// TestHandoffOfSlowRun: until the previous owner's run has ended, lookups on all nodes return the previous owner. Then
// they return the next owner.
func TestHandoffOfSlowRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions, cfg.Handoff = 16, 20*time.Second }})
		f := &fleet{t: t}
		const slow = 4 * time.Second
		for _, id := range ids(3) {
			f.run(c.Agent(id), func(placement.Partition) time.Duration { return slow })
		}
		time.Sleep(10 * time.Second)
		if !f.complete(16) {
			t.Fatal("not every partition runs")
		}
		p := c.Agent("n00").Owned()[0]
		former := c.Agent("n00")
		go func() { _ = former.Drain(t.Context()) }()
		time.Sleep(2 * time.Second) // the run was told to end, but has not ended
		next, _ := c.Agent("n01").Snapshot().NextOwnerOf(p)
		if next.ID == "n00" || f.runners(p) != "n00" || c.Agent("n00").Owns(p) {
			t.Fatalf("%s is next, %s runs it, n00 owns it: %v", next.ID, f.runners(p), c.Agent("n00").Owns(p))
		}
		if waits := c.Agent(string(next.ID)).Snapshot().State.Waits(); len(waits) == 0 {
			t.Error("the next owner does not say that it waits")
		}
		for _, id := range ids(3) {
			if m, _ := c.Agent(id).OwnerOf(p); m.ID != "n00" {
				t.Errorf("%s names %s while n00 runs it", id, m.ID)
			}
		}
		time.Sleep(slow)
		if f.runners(p) != string(next.ID) || !c.Agent(string(next.ID)).Owns(p) {
			t.Errorf("%q runs it, want %s", f.runners(p), next.ID)
		}
		for _, id := range ids(3) {
			if m, _ := c.Agent(id).OwnerOf(p); m.ID != next.ID {
				t.Errorf("%s names %s, want %s", id, m.ID, next.ID)
			}
		}
	})
}

// TestHandoffBound: if a run does not return, the next owner waits for the bound and then starts its own run. Both
// nodes log this.
func TestHandoffBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10 * time.Second
		var log logbook
		c := started(t, 3, clustertest.Options{Log: log.handler(), Config: func(cfg *cluster.Config) { cfg.Partitions, cfg.Handoff = 16, bound }})
		f := &fleet{t: t}
		hangs := c.Agent("n00").Owned()[0]
		began := make(chan time.Time, 1)
		hung := make(chan struct{})
		for _, id := range ids(3) {
			agent := c.Agent(id)
			go func() {
				_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
					if p == hangs && id == "n00" {
						<-hung
						return
					}
					if p == hangs {
						began <- time.Now()
					}
					f.begin(id, p)
					defer f.end(p)
					<-ctx.Done()
				})
			}()
		}
		defer close(hung)
		time.Sleep(5 * time.Second)
		drained := time.Now()
		former := c.Agent("n00")
		go func() { _ = former.Drain(t.Context()) }()
		time.Sleep(5 * time.Second)
		if len(began) > 0 {
			t.Fatal("it runs on another node, although n00 has not returned")
		}
		time.Sleep(10 * time.Second)
		if waited := (<-began).Sub(drained); waited < bound || waited > bound+time.Second {
			t.Errorf("it waited for %v, want %v", waited, bound)
		}
		for _, line := range []string{
			fmt.Sprintf("handoff overdue: running without another node's answer\" node=%s partition=%d", mustOwner(c, hangs), hangs),
			"missing=n00", "handoff overdue: a stopped run has not returned\" node=n00",
		} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log has no %q:\n%s", line, log.String())
			}
		}
		if n := c.Agent(string(mustOwner(c, hangs))).Snapshot().Stats.HandoffOverruns; n != 1 {
			t.Errorf("%d overruns", n)
		}
	})
}

func mustOwner(c *clustertest.Cluster, p placement.Partition) lease.NodeID {
	m, _ := c.Agent("n01").Snapshot().NextOwnerOf(p)
	return m.ID
}

// An isolated node that leaves sends its leave message when its runs have returned. Then the remaining node starts its
// own runs.
func TestLeaveWhileIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 16
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Partitions, cfg.Handoff = partitions, 20*time.Second
			if cfg.ID == "n00" {
				cfg.MinMembers = 3
			}
		}})
		c.Start("n00", "n01", "n02")
		f := &fleet{t: t}
		for _, id := range []string{"n00", "n01", "n02"} {
			f.run(c.Agent(id), func(placement.Partition) time.Duration { return 4 * time.Second })
		}
		time.Sleep(15 * time.Second)
		if !f.complete(partitions) {
			t.Fatal("not every partition runs")
		}
		if err := c.Agent("n02").Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Agent("n00").Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if !f.complete(partitions) {
			t.Error("in the end, not every partition runs")
		}
	})
}
