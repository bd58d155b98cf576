package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// Nodes that start together, or shortly after each other, wait for each other before they own anything.
func TestSimultaneousStart(t *testing.T) {
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

// Joins within the time Debounce are combined into one change. The partitions of a leaving node move without this
// delay.
func TestDebounce(t *testing.T) {
	const debounce = 2 * time.Second
	c := newFleet(t, sim.Options{Config: func(cfg *node.Config) { cfg.Debounce = debounce }})
	c.Start(ids(5)...)
	c.agree(10 * time.Second)
	c.Run(10 * time.Second)
	r := c.record()
	c.Start("new1")
	c.Run(debounce / 2)
	c.Start("new2")
	if took := c.agree(2 * debounce); took < debounce/4 {
		t.Errorf("agreement %v after the second join", took)
	}
	for _, id := range ids(5) {
		if n := len(r.batches(id)); n != 1 {
			t.Errorf("%s published %d changes for two joins", id, n)
		}
	}
	c.Run(2 * debounce)
	begin := c.Elapsed()
	c.drain("n01")
	if took := c.Elapsed() - begin; took >= debounce/2 {
		t.Errorf("a drain took %v", took)
	}
}

// All nodes agree soon after each of these changes, and only the expected partitions move.
func TestAgreement(t *testing.T) {
	for _, tt := range []struct {
		name      string
		change    func(c fleet)
		limit     time.Duration
		may       func(move) bool // nil = any
		unwatched bool
		long      bool // for 50 nodes
	}{
		{name: "a join", change: func(c fleet) { c.Start("new") }, limit: time.Second, may: toNew},
		{name: "a drain, from its start", change: func(c fleet) { c.Node("n01").Drain() }, limit: time.Second, may: from("n01")},
		{
			name:   "the end of a drain",
			change: func(c fleet) { c.drain("n01"); c.Node("n01").Undrain() }, limit: time.Second, may: nothing,
		},
		{name: "a leave message without a drain", change: func(c fleet) { c.LeaveAtOnce("n01") }, limit: time.Second, may: from("n01")},
		{
			name: "a crash without confirmation", unwatched: true,
			change: func(c fleet) { c.Crash("n01") }, limit: ttl + 500*time.Millisecond, may: from("n01"),
		},
		{
			name:   "a crash of a third at once",
			change: func(c fleet) { c.Crash(c.IDs()[:len(c.IDs())/3]...) }, limit: ttl + 500*time.Millisecond,
		},
		{name: "a restart elsewhere within the TTL", change: func(c fleet) { c.Restart("n01") }, limit: 2 * time.Second, may: nothing},
		{
			name: "the end of a split of 3 minutes", long: true,
			change: func(c fleet) {
				all, third := c.IDs(), max(1, len(c.IDs())/3)
				c.Split(all[:third], all[third:])
				c.Run(3 * time.Minute)
				if got := len(c.Node(all[0]).Members()); got != third {
					c.t.Fatalf("one side sees %d members, has %d", got, third)
				}
				c.Heal()
			},
			limit: 20 * time.Second, may: nothing,
		},
		{
			name:   "the end of a pause of 10 s",
			change: func(c fleet) { c.Pause("n01"); c.Run(10 * time.Second); c.Resume("n01") }, limit: 3 * time.Second, may: nothing,
		},
	} {
		for _, n := range []int{3, 10, 50} {
			if n == 50 && (testing.Short() || tt.long && !*long) {
				continue
			}
			t.Run(fmt.Sprint(tt.name, "/", n), func(t *testing.T) {
				c := started(t, n, sim.Options{Seed: uint64(n), Unwatched: tt.unwatched})
				before := c.Owners()
				tt.change(c)
				took := c.agree(tt.limit)
				t.Logf("%d nodes: agreement %v after %s", n, took, tt.name)
				if tt.unwatched && took < ttl-2500*time.Millisecond { // a heartbeat before the crash, with its jitter
					t.Errorf("the lease expired after %v", took)
				}
				c.Run(2 * ttl) // even after the end of an earlier lease
				c.check()
				if tt.may != nil {
					c.onlyMoved(before, tt.may)
				}
			})
		}
	}
}

// After a leave, the other nodes agree within a second, and only the leaver's partitions have moved.
func TestLeave(t *testing.T) {
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
				t.Errorf("%s let %d leases expire: the leave message missed it", id, n)
			}
		}
	})
}

// Every leave message reaches every node even if packets are lost, so no lease has to expire.
func TestLeaveMessages(t *testing.T) {
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

// Members can tell a node that has not reported its load from an idle node.
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

// The test runs 10 nodes for 2 minutes, or 50 nodes for 10 minutes with -long. TestScale runs 200 and 260 nodes, with
// less than a minute of rest.
func TestLossWithoutFalseExpiry(t *testing.T) {
	n, rest := 10, 2*time.Minute
	if *long {
		n, rest = 50, 10*time.Minute
	}
	c := newFleet(t, sim.Options{Loss: 0.2, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
	c.Start(ids(n)...)
	t.Logf("%d nodes, 20 %% loss: agreement %v after the start", n, c.agree(10*time.Second))
	c.Run(rest)
	c.check()
	bytes := 0
	for _, id := range c.IDs() {
		bytes += c.Node(id).Sent().Bytes
		if expired := c.Node(id).View().Stats.Expired; expired > 0 {
			t.Errorf("%s let %d leases of living nodes expire", id, expired)
		}
	}
	t.Logf("%d nodes, 20 %% loss: %.1f kB/s a node", n, float64(bytes)/float64(n)/rest.Seconds()/1e3)
}
