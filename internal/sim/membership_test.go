package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// Nodes that start together, or one soon after the other, wait for each other before
// they own anything.
func TestSimultaneousStart(t *testing.T) { // S3.7, S3.17
	settled := func(t *testing.T, c fleet) {
		t.Helper()
		for _, id := range c.IDs() {
			acquired, released := 0, 0
			for _, b := range c.Node(id).Batches() {
				acquired += len(b.Acquired)
				released += len(b.Released)
			}
			own := len(c.Node(id).Owned())
			if acquired > 2*own+10 || released > acquired-own {
				t.Errorf("%s owns %d partitions, acquired %d and released %d on the way: it did not settle first", id, own, acquired, released)
			}
		}
	}
	inFleets(t, settled)
	t.Run("one by one", func(t *testing.T) {
		c := newFleet(t, sim.Options{})
		for _, id := range ids(10) {
			c.Start(id)
			c.Run(300 * time.Millisecond)
		}
		c.agree(3 * time.Second)
		settled(t, c)
	})
}

// Joins are gathered for QuietWindow. The partitions of a node that leaves do not wait.
func TestQuietWindow(t *testing.T) {
	const quiet = 2 * time.Second
	c := newFleet(t, sim.Options{Config: func(cfg *node.Config) { cfg.QuietWindow = quiet }})
	c.Start(ids(5)...)
	c.agree(10 * time.Second)
	c.Run(10 * time.Second)
	r := c.record()
	c.Start("new1")
	c.Run(quiet / 2)
	c.Start("new2")
	if took := c.agree(2 * quiet); took < quiet/4 {
		t.Errorf("agreement %v after the second join", took)
	}
	for _, id := range ids(5) {
		if n := len(c.Node(id).Batches()) - r.seen[id]; n != 1 {
			t.Errorf("%s published %d changes for two joins", id, n)
		}
	}
	c.Run(2 * quiet)
	begin := c.Elapsed()
	c.drain("n01")
	if took := c.Elapsed() - begin; took >= quiet/2 {
		t.Errorf("a drain took %v", took)
	}
}

func TestJoin(t *testing.T) { // S3.9
	inFleets(t, func(t *testing.T, c fleet) {
		before := c.Owners()
		c.Start("new")
		t.Logf("%d nodes: agreement %v after the join", len(c.IDs())-1, c.agree(time.Second))
		c.onlyMoved(before, to("new"))
	})
}

// After a leave, the others agree within a second, and only partitions of the leaver
// moved.
func TestLeave(t *testing.T) { // S3.9
	inFleets(t, func(t *testing.T, c fleet) {
		before, leaver := c.Owners(), c.Node("n01")
		c.Leave("n01")
		c.check()
		c.onlyMoved(before, from("n01"))
		if n := len(leaver.Owned()); n > 0 {
			t.Errorf("the leaver owns %d partitions", n)
		}
		for _, id := range c.IDs() {
			if n := c.Node(id).View().Stats.Expired; n > 0 {
				t.Errorf("%s let %d leases expire: the farewell missed it", id, n)
			}
		}
	})
}

// Every farewell reaches every node: no lease has to expire, even with lost packets.
func TestFarewells(t *testing.T) { // S3.9
	for _, loss := range []float64{0, 0.2} {
		c := started(t, 25, sim.Options{})
		c.SetLoss(loss)
		for _, id := range ids(8) {
			begin := c.Elapsed()
			c.Leave(id)
			c.agree(time.Second)
			if took := c.Elapsed() - begin; took > ttl/2 {
				t.Errorf("loss %v: a leave took %v", loss, took)
			}
		}
	}
}

func TestCrash(t *testing.T) { // S3.2, S3.4, S3.6
	for _, n := range []int{3, 10, 50} {
		c := started(t, n, sim.Options{Seed: uint64(n), Unwatched: true})
		before := c.Owners()
		c.Crash("n01")
		took := c.agree(ttl + 500*time.Millisecond)
		t.Logf("%d nodes: agreement %v after the crash", n, took)
		if took < ttl-2500*time.Millisecond { // a heartbeat before the crash, with its jitter
			t.Errorf("the lease expired after %v", took)
		}
		c.onlyMoved(before, from("n01"))
	}
}

func TestCrashOfAThird(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		all := c.IDs()
		c.Crash(all[:len(all)/3]...)
		t.Logf("%d nodes: agreement %v after the crash of a third", len(all), c.agree(ttl+500*time.Millisecond))
	})
}

// A restart within the TTL moves nothing, nor does the end of the earlier lease.
func TestRestart(t *testing.T) { // S3.5
	inFleets(t, func(t *testing.T, c fleet) {
		before := c.Owners()
		c.Restart("n01")
		t.Logf("%d nodes: agreement %v after the restart", len(c.IDs()), c.agree(2*time.Second))
		c.onlyMoved(before, nothing)
		c.Run(2 * ttl)
		c.check()
	})
}

func TestSplitAndHeal(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		all := c.IDs()
		third := max(1, len(all)/3)
		c.Split(all[:third], all[third:])
		c.Run(3 * time.Minute)
		if got := len(c.Node(all[0]).Members()); got != third {
			t.Fatalf("one side sees %d members, has %d", got, third)
		}
		c.Heal()
		t.Logf("%d nodes: agreement %v after 3 minutes of split", len(all), c.agree(20*time.Second))
	})
}

func TestDrainAndUndrain(t *testing.T) {
	inFleets(t, func(t *testing.T, c fleet) {
		before := c.Owners()
		c.Node("n01").Drain()
		t.Logf("%d nodes: agreement %v after the drain began", len(c.IDs()), c.agree(time.Second))
		c.onlyMoved(before, from("n01"))
		c.undrain("n01")
		c.agree(time.Second)
		c.onlyMoved(before, nothing)
	})
}

// The older of two processes with one id stops and owns nothing, in a fleet as well as
// alone, where each of the two has to hear of the other itself.
func TestDuplicateID(t *testing.T) {
	stops := func(t *testing.T, c fleet, id string) {
		t.Helper()
		older := c.Node(id)
		c.Start(id)
		c.await("the older process stops", 2*ttl, func() bool { return older.Duplicate() != nil })
		if dup := older.Duplicate(); string(dup.ID) != id || dup.Addr != c.Node(id).Addr {
			t.Errorf("it stopped for %v", dup)
		}
		if len(older.Owned()) > 0 || older.Live() {
			t.Error("it still owns something")
		}
		c.agree(ttl)
	}
	inFleets(t, func(t *testing.T, c fleet) { stops(t, c, "n01") })
	t.Run("alone", func(t *testing.T) { stops(t, started(t, 1, sim.Options{}), "n00") })
}

// A node that has reported no load differs from an idle one.
func TestLoadIsReported(t *testing.T) {
	c := started(t, 2, sim.Options{})
	if got := c.member("n00", "n01").Load; got != lease.NoLoad {
		t.Errorf("load %d before any was reported, want %d", got, lease.NoLoad)
	}
	for _, units := range []int64{0, 2450} {
		c.Node("n01").SetLoad(units)
		c.Run(5 * time.Second)
		if got := c.member("n00", "n01").Load; got != units {
			t.Errorf("load %d after SetLoad(%d)", got, units)
		}
	}
}

func TestLossWithoutFalseExpiry(t *testing.T) {
	n, long := 50, 10*time.Minute
	if testing.Short() {
		n, long = 10, 2*time.Minute
	}
	c := newFleet(t, sim.Options{Loss: 0.2, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
	c.Start(ids(n)...)
	t.Logf("%d nodes, 20 %% loss: agreement %v after the start", n, c.agree(10*time.Second))
	c.Run(long)
	c.check()
	bytes := 0
	for _, id := range c.IDs() {
		bytes += c.Node(id).Sent().Bytes
		if expired := c.Node(id).View().Stats.Expired; expired > 0 {
			t.Errorf("%s let %d leases of living nodes expire", id, expired)
		}
	}
	t.Logf("%d nodes, 20 %% loss: %.1f kB/s a node", n, float64(bytes)/float64(n)/long.Seconds()/1e3)
}
