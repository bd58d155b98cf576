package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// sizes are the clusters that every scenario runs in.
func sizes(t *testing.T) []int {
	t.Helper()
	switch {
	case testing.Short():
		return []int{3, 10}
	case underRace: // five times slower; make test runs all sizes without it, too
		return []int{3, 10, 25}
	}
	return []int{3, 10, 25, 50}
}

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

// inClusters runs a scenario in a bubble with a cluster of each size.
func inClusters(t *testing.T, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	for _, n := range sizes(t) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenario(t, started(t, n, clustertest.Options{})) })
		})
	}
}

const ttl = 6 * time.Second

func TestSimultaneousStart(t *testing.T) { // S3.7, S3.17
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		for _, id := range c.IDs() {
			acquired, released := 0, 0
			for _, b := range c.Batches(id) {
				acquired += len(b.Acquired)
				released += len(b.Released)
			}
			own := len(c.Agent(id).Owned())
			if acquired > 2*own+10 || released > acquired-own {
				t.Errorf("%s owns %d partitions but acquired %d and released %d on the way: it did not settle first", id, own, acquired, released)
			}
		}
	})
}

func TestJoin(t *testing.T) { // S3.9
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Start("new")
		took := c.WaitAgreed(time.Second)
		t.Logf("%d nodes: agreement %v after the join", len(c.IDs())-1, took)
		for p, owner := range owners(c) {
			if owner != before[p] && owner != "new" {
				t.Fatalf("partition %d moved from %s to %s when another node joined", p, before[p], owner)
			}
		}
	})
}

func TestLeave(t *testing.T) { // S3.9
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		leaver := c.Agent("n01")
		go func() { _ = leaver.Leave(context.Background()) }()
		begin := time.Now()
		for len(leaver.Owned()) > 0 || !sameOwners(c, "n01") {
			if time.Since(begin) > time.Second {
				t.Fatalf("the others do not agree 1 s after the leave began:\n%v", c.Disagreements())
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%d nodes: agreement %v after the leave began", len(c.IDs()), time.Since(begin))
		<-leaver.Done()
		c.Crash("n01") // only the book-keeping is to hear of it
		c.WaitAgreed(time.Second)
		onlyMovedFromN01(t, before, owners(c))
	})
}

// A farewell gets through where packets are lost: nobody has to wait until the
// lease runs out.
func TestLeaveWithLoss(t *testing.T) { // S3.9
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		c.SetLoss(0.2)
		leaver := c.Agent("n01")
		begin := time.Now()
		go func() { _ = leaver.Leave(context.Background()) }()
		for seen := true; seen; {
			seen = false
			for _, id := range c.IDs() {
				seen = seen || (id != "n01" && sees(c, id, "n01"))
			}
			if time.Since(begin) > ttl/2 {
				t.Fatalf("somebody still sees the leaver after %v", time.Since(begin))
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%d nodes, 20 %% loss: nobody sees the leaver %v after the leave began", len(c.IDs()), time.Since(begin))
		<-leaver.Done()
	})
}

func TestCrash(t *testing.T) { // S3.2, S3.4, S3.6
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Crash("n01")
		took := c.WaitAgreed(ttl + 500*time.Millisecond)
		t.Logf("%d nodes: agreement %v after the crash", len(c.IDs())+1, took)
		onlyMovedFromN01(t, before, owners(c))
	})
}

func TestCrashOfAThird(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		all := c.IDs()
		c.Crash(all[:len(all)/3]...)
		t.Logf("%d nodes: agreement %v after the crash of a third", len(all), c.WaitAgreed(ttl+500*time.Millisecond))
	})
}

func TestRestartElsewhere(t *testing.T) { // S3.5
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Restart("n01")
		t.Logf("%d nodes: agreement %v after the restart", len(c.IDs()), c.WaitAgreed(2*time.Second))
		for p, owner := range owners(c) {
			if owner != before[p] {
				t.Fatalf("partition %d moved from %s to %s by a restart within the TTL", p, before[p], owner)
			}
		}
		time.Sleep(2 * ttl) // the earlier life's lease must not take anything along when it would have ended
		c.Check()
	})
}

func TestSplitAndHeal(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		all := c.IDs()
		third := max(1, len(all)/3)
		c.Split(all[:third], all[third:])
		time.Sleep(3 * time.Minute)
		if got := len(c.Agent(all[0]).Members()); got != third {
			t.Fatalf("a side of the split sees %d members, has %d", got, third)
		}
		c.Heal()
		t.Logf("%d nodes: agreement %v after 3 minutes of split ended", len(all), c.WaitAgreed(20*time.Second))
	})
}

func TestPausedNode(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		a := c.Agent("n01")
		mine := a.Owned()
		c.Pause("n01")
		time.Sleep(ttl + time.Second)
		if a.Live() {
			t.Fatal("takes itself for live although its lease ran out")
		}
		for _, p := range mine {
			if a.Owns(p) {
				t.Fatalf("owns partition %d although its lease ran out", p)
			}
		}
		time.Sleep(3 * time.Second)
		c.Resume("n01")
		t.Logf("%d nodes: agreement %v after a pause of 10 s", len(c.IDs()), c.WaitAgreed(3*time.Second))
		if a.Snapshot().Stats.Fences != 1 || !a.Live() {
			t.Errorf("fenced itself %d times, live: %v", a.Snapshot().Stats.Fences, a.Live())
		}
	})
}

// A node that stood still for less than its lease finds its socket full of
// heartbeats. It must read them before it holds anybody for dead.
func TestShortPause(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		for i := range time.Duration(pauses) { // some meet the moment when the own lease holds and another does not
			pause := 4*time.Second + i*2*time.Second/pauses
			time.Sleep(5*time.Second + i*173*time.Millisecond)
			before := len(c.Batches("n01"))
			c.Pause("n01")
			time.Sleep(pause)
			c.Resume("n01")
			c.WaitAgreed(3 * time.Second)
			for _, b := range c.Batches("n01")[before:] {
				if len(b.Left) > 0 {
					t.Errorf("after a pause of %v, it held %v for dead", pause, b.Left)
				}
			}
		}
	})
}

// A command that comes while a node is joining anew tells nobody that all the
// others left, only because it has not heard them yet.
func TestDrainWhileJoiningAnew(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		c.Pause("n01")
		time.Sleep(10 * time.Second)
		before := len(c.Batches("n01"))
		c.Resume("n01")
		if err := c.Agent("n01").Drain(t.Context()); err != nil {
			t.Error(err)
		}
		c.WaitAgreed(3 * time.Second)
		for _, b := range c.Batches("n01")[before:] {
			if len(b.Left) > 0 {
				t.Errorf("told that %v left", b.Left)
			}
		}
	})
}

// A node that stood still must not bring back, from the packets that waited for
// it, somebody who died meanwhile.
func TestPausedNodeRaisesNoDead(t *testing.T) { // S3.5
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		c.Pause("n01")
		time.Sleep(3 * time.Second)
		c.Crash("n02")
		time.Sleep(2 * ttl)
		joined := make(map[string]int)
		for _, id := range c.IDs() {
			joined[id] = len(c.Batches(id))
		}
		c.Resume("n01")
		c.WaitAgreed(3 * time.Second)
		time.Sleep(2 * ttl)
		c.Check()
		for _, id := range c.IDs() {
			for _, b := range c.Batches(id)[joined[id]:] {
				for _, j := range b.Joined {
					if j == "n02" {
						t.Errorf("%s saw the dead n02 join again", id)
					}
				}
			}
		}
	})
}

// TestLossWithoutFalseExpiry is small under the race detector, whose runtime
// crashes on half a million packets in one bubble; make test runs it as it is,
// too.
func TestLossWithoutFalseExpiry(t *testing.T) {
	n, minutes := 50, 10
	if testing.Short() || underRace {
		n, minutes = 10, 2
	}
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Loss: 0.2, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
		c.Start(ids(n)...)
		c.WaitAgreed(10 * time.Second)
		time.Sleep(time.Duration(minutes) * time.Minute)
		c.Check()
		for _, id := range c.IDs() {
			if s := c.Agent(id).Snapshot().Stats; s.Expired != 0 {
				t.Errorf("%s let %d leases of living nodes expire", id, s.Expired)
			}
		}
		t.Logf("%d nodes, 20 %% loss: %.1f kB/s sent per node", n, bytesPerSecond(c, time.Duration(minutes)*time.Minute)/1e3)
	})
}

// TestClockOffsets has wall clocks up to 8 s apart, more than MaxSkew: each is
// judged against the median of all, so nobody is rejected and nothing flaps.
func TestClockOffsets(t *testing.T) { // S3.3
	for _, n := range sizes(t) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clustertest.New(t, clustertest.Options{})
				offsets := []time.Duration{0, 4 * time.Second, -4 * time.Second}
				for i, id := range ids(n) {
					c.StartWith(id, clustertest.WithClockOffset(offsets[i%3]))
				}
				c.WaitAgreed(3 * time.Second)
				begin := make(map[string]int)
				for _, id := range c.IDs() {
					begin[id] = len(c.Batches(id))
				}
				time.Sleep(2 * time.Minute)
				c.Check()
				for _, id := range c.IDs() {
					if more := len(c.Batches(id)) - begin[id]; more != 0 {
						t.Errorf("%s told of %d changes while nothing changed", id, more)
					}
				}
			})
		})
	}
}

func TestClockAhead(t *testing.T) { // S3.3
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		a := c.StartWith("fast", clustertest.WithClockOffset(7*time.Second))
		time.Sleep(20 * time.Second)
		if n := len(a.Owned()); n != 0 {
			t.Errorf("a node whose clock is 7 s ahead owns %d partitions", n)
		}
		for _, id := range ids(3) {
			for _, m := range c.Agent(id).Members() {
				if m.ID == "fast" {
					t.Errorf("%s accepts a node whose clock is 7 s ahead", id)
				}
			}
			if c.Agent(id).Snapshot().Stats.SkewRejected == 0 {
				t.Errorf("%s rejected no heartbeat", id)
			}
		}
	})
}

func TestDrainAndUndrain(t *testing.T) {
	inClusters(t, func(t *testing.T, c *clustertest.Cluster) {
		a := c.Agent("n01")
		before := owners(c)
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(a.Owned()); n != 0 {
			t.Errorf("owns %d partitions after Drain", n)
		}
		c.Check()
		onlyMovedFromN01(t, before, owners(c))
		if err := a.Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitAgreed(time.Second)
		for p, owner := range owners(c) {
			if owner != before[p] {
				t.Fatalf("partition %d went from %s to %s by drain and undrain", p, before[p], owner)
			}
		}
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
		var dup *cluster.DuplicateIDError
		if !asDuplicate(older.Err(), &dup) || dup.ID != "n01" || dup.Other != c.Agent("n01").Addr() {
			t.Errorf("the older process stopped with %v", older.Err())
		}
		if older.IsOwner("x") || len(older.Owned()) != 0 {
			t.Error("the older process still owns something")
		}
		c.WaitAgreed(ttl)
	})
}

// Whoever places by load must tell an idle node from one that has said nothing.
func TestLoadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{})
		load := func() int64 {
			m, _ := findMember(c.Agent("n00").Members(), "n01")
			return m.Load
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

func findMember(members []cluster.Member, id lease.NodeID) (cluster.Member, bool) {
	i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == id })
	if i < 0 {
		return cluster.Member{}, false
	}
	return members[i], true
}

// With nobody else there, each of the two has to tell the other itself.
func TestDuplicateIDAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 1, clustertest.Options{})
		older := c.Agent("n00")
		c.Start("n00")
		select {
		case <-older.Done():
		case <-time.After(2 * ttl):
			t.Fatal("the older process goes on")
		}
		var dup *cluster.DuplicateIDError
		if !asDuplicate(older.Err(), &dup) || dup.Other != c.Agent("n00").Addr() {
			t.Errorf("the older process stopped with %v", older.Err())
		}
		c.WaitAgreed(ttl)
	})
}
