package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// Nodes that crash together cause one new table, although their leases expire at different times within a heartbeat
// interval. After a single crash, there is no delay.
func TestCrashesMakeOneTable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		nodes, crash int
		loss         float64
	}{{100, 1, 0.2}, {100, 30, 0.2}, {300, 10, 0}} {
		t.Run(fmt.Sprintf("%d of %d", tt.crash, tt.nodes), func(t *testing.T) {
			t.Parallel()
			if tt.nodes > 100 && !*long {
				t.Skip("takes seconds: -long")
			}
			c := started(t, tt.nodes, sim.Options{Seed: 1, Jitter: 2 * time.Millisecond, Loss: tt.loss, Unwatched: true})
			c.Run(10 * time.Second)
			r := c.record()
			c.Crash(c.IDs()[:tt.crash]...)
			if tt.crash > 1 {
				c.Run(ttl + time.Second)
			} else if waited := c.longestWait(ttl + time.Second); waited > 0 {
				t.Errorf("a single expiry waits for %v", waited)
			}
			if tables, _ := r.tables(); tables != 1 {
				t.Errorf("%d tables on the way", tables)
			}
			c.check()
		})
	}
}

// longestWait lets time pass. It returns the longest time between the first new loss that a node saw and the next table
// of this node.
func (c fleet) longestWait(limit time.Duration) (longest time.Duration) {
	type look struct {
		expired, tables uint64
		since           time.Duration
	}
	looks := make(map[string]look)
	stats := func(id string) node.Stats { return c.Node(id).View().Stats }
	for _, id := range c.IDs() {
		s := stats(id)
		looks[id] = look{expired: s.Expired, tables: s.TableChanges}
	}
	for end := c.Elapsed() + limit; c.Elapsed() < end; c.Run(20 * time.Millisecond) {
		for id, l := range looks {
			s := stats(id)
			switch {
			case s.TableChanges > l.tables && l.since > 0:
				longest = max(longest, c.Elapsed()-l.since)
				l = look{s.Expired, s.TableChanges, 0}
			case s.TableChanges > l.tables:
				l = look{s.Expired, s.TableChanges, 0}
			case s.Expired > l.expired && l.since == 0:
				l.since = c.Elapsed()
			}
			looks[id] = l
		}
	}
	return longest
}

// comesAndGoes is a fleet in which one node keeps leaving and returning.
type comesAndGoes struct {
	fleet
	id string
}

// changes returns the largest number of tables that any node had, except the node that keeps leaving and returning.
func (c *comesAndGoes) changes() (most uint64) {
	for _, id := range c.IDs() {
		if id != c.id {
			most = max(most, c.Node(id).View().Stats.TableChanges)
		}
	}
	return most
}

// flapping returns how much longer the members consider a node to be flapping, or 0 if they don't.
func (c fleet) flapping(id string) time.Duration {
	c.t.Helper()
	var at time.Time
	for _, other := range c.IDs() {
		m := c.member(other, id)
		if m.FlappingUntil == 0 {
			return 0
		}
		at = c.Node(other).View().Live.Local(m.FlappingUntil)
	}
	return at.Sub(c.Node(c.IDs()[0]).Now())
}

// A node that keeps leaving and returning changes the tables of the other nodes at most five times, because it leaves
// three times and returns twice. Then it owns nothing until it has stayed for a while.
func TestDamping(t *testing.T) {
	t.Parallel()
	crashLoop := func(c *comesAndGoes) {
		for range 30 {
			c.Crash(c.id)
			c.Run(3 * time.Second)
			c.Start(c.id)
			c.Run(7 * time.Second)
		}
	}
	cutOff := func(c *comesAndGoes) {
		others := slices.DeleteFunc(c.IDs(), func(id string) bool { return id == c.id })
		for range 25 {
			c.Split([]string{c.id}, others)
			c.Run(7 * time.Second)
			c.Heal()
			c.Run(5 * time.Second)
		}
	}
	for _, tt := range []struct {
		name      string
		nodes     int
		disturb   func(c *comesAndGoes)
		noDamping bool
		tables    uint64
		hold      time.Duration // at the end
	}{
		{"killed every 10 s", 2, crashLoop, false, 5, 30 * ttl},
		{"killed every 10 s", 10, crashLoop, false, 5, 30 * ttl},
		{"killed every 10 s", 3, crashLoop, true, 60, 0},
		{"cut off for 7 of 12 s", 2, cutOff, false, 5, 11 * ttl},
		{"cut off for 7 of 12 s", 10, cutOff, false, 5, 11 * ttl},
		{"cut off for 7 of 12 s", 3, cutOff, true, 50, 0},
	} {
		t.Run(fmt.Sprintf("%s, of %d, no damping: %v", tt.name, tt.nodes, tt.noDamping), func(t *testing.T) {
			t.Parallel()
			c := &comesAndGoes{fleet: started(t, tt.nodes, sim.Options{
				Seed:   uint64(tt.nodes),
				Config: func(cfg *node.Config) { cfg.DisableFlapDamping = tt.noDamping },
			})}
			c.id = c.IDs()[tt.nodes-1]
			c.Run(10 * time.Second)
			before := c.changes()
			tt.disturb(c)
			c.agree(10 * time.Second)
			if made := c.changes() - before; made != tt.tables {
				t.Errorf("%d tables at the others, want %d", made, tt.tables)
			}
			hold := c.flapping(c.id)
			if hold > tt.hold || hold < tt.hold-2*10*time.Second {
				t.Errorf("flapping for %v, want about %v", hold, tt.hold)
			}
			if owns := len(c.Node(c.id).Owned()) > 0; owns != tt.noDamping {
				t.Errorf("it owns partitions: %v", owns)
			}
			c.Run(hold + time.Second)
			if c.check(); c.flapping(c.id) > 0 || len(c.Node(c.id).Owned()) == 0 {
				t.Error("it owns nothing after the end of its hold")
			}
		})
	}
}

// No node is flapping because of what operators usually do to a fleet.
func TestRestartsAreNotDamped(t *testing.T) {
	t.Parallel()
	roll := func(c fleet, rounds int, end func(id string)) {
		for range rounds {
			for _, id := range ids(6) {
				end(id)
				c.Run(500 * time.Millisecond)
				c.Start(id)
				c.Run(1500 * time.Millisecond)
			}
		}
	}
	for name, disturb := range map[string]func(c fleet){
		"rolled three times, with leave messages": func(c fleet) { roll(c, 3, c.Leave) },
		"stopped and started at once": func(c fleet) {
			for range 4 {
				for _, id := range ids(6) {
					c.LeaveAtOnce(id)
					c.Start(id)
					c.Run(2 * time.Second)
				}
			}
		},
		"rolled twice, with kill -9": func(c fleet) { roll(c, 2, func(id string) { c.Crash(id) }) },
		"all killed at once, four times": func(c fleet) {
			for range 4 {
				c.Crash(ids(6)...)
				c.Start(ids(6)...)
				c.Run(5 * time.Second)
			}
		},
		"scaled in and out": func(c fleet) {
			for range 4 {
				c.Leave("n05")
				c.Run(time.Second)
				c.Start("n05")
				c.Run(2 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logbook
			c := started(t, 6, sim.Options{Log: log.write})
			disturb(c)
			c.agree(10 * time.Second)
			for _, line := range log.find("flapping") {
				t.Error(line)
			}
			for _, id := range c.IDs() {
				if len(c.Node(id).Owned()) == 0 {
					t.Errorf("%s owns nothing", id)
				}
			}
		})
	}
}

// A node whose peers crashed and returned is not flapping because of that. Its own first crash counts as its first.
func TestSurvivorsAreNotDamped(t *testing.T) {
	t.Parallel()
	c := started(t, 6, sim.Options{})
	for range 2 {
		c.Crash("n00", "n01", "n02", "n03")
		c.Run(7 * time.Second)
		c.StartWith("n00", sim.Setup{Seeds: []string{c.Node("n05").Addr}})
		c.Start("n01", "n02", "n03")
		c.agree(5 * time.Second)
	}
	c.Restart("n05")
	c.agree(5 * time.Second)
	if hold := c.flapping("n05"); hold > 0 || len(c.Node("n05").Owned()) == 0 {
		t.Errorf("flapping for %v after one crash", hold)
	}
}

// Only the nodes that are paused repeatedly can be flapping, even if they are the majority. The other nodes have not
// ended, so their first crash counts as their first.
func TestPausesAreDamped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes, paused, rounds int
		flapping              bool // whether the first of the paused nodes is flapping
		opts                  sim.Options
	}{
		"one of two":                 {2, 1, 4, true, sim.Options{}},
		"one of two, by majority":    {2, 1, 4, false, majority(1)}, // the other node is isolated, so it cannot own anything
		"three of five":              {5, 3, 2, false, sim.Options{}},
		"three of five, loss":        {5, 3, 2, false, sim.Options{Seed: 1, Loss: 0.2}},
		"three of five, four times":  {5, 3, 4, false, sim.Options{}},
		"three of five, by majority": {5, 3, 4, false, majority(1)},
		"eight of ten":               {10, 8, 4, false, sim.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := started(t, tt.nodes, tt.opts)
			c.Run(2 * ttl)
			all := c.IDs()
			for range tt.rounds {
				for _, id := range all[:tt.paused] {
					c.Pause(id)
				}
				c.Run(8 * time.Second)
				for _, id := range all[:tt.paused] {
					c.Resume(id)
				}
				c.Run(4 * time.Second)
			}
			c.agree(10 * time.Second)
			if hold := c.flapping(all[0]); (hold > 0) != tt.flapping {
				t.Errorf("the node that was paused is flapping for %v", hold)
			}
			well := all[tt.nodes-1]
			c.Crash(well)
			c.Run(3 * time.Second)
			c.Start(well)
			c.agree(10 * time.Second)
			if hold := c.flapping(well); hold > 0 || len(c.Node(well).Owned()) == 0 {
				t.Errorf("a node that crashed once is flapping for %v", hold)
			}
		})
	}
}

// No matter how many nodes leave and return, half of the members own partitions in the end, and all members do once the
// fleet is quiet.
func TestDampingSparesTheFleet(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(c fleet){
		"rolled four times, with kill -9": func(c fleet) {
			for range 4 {
				for _, id := range ids(6) {
					c.Restart(id)
					c.Run(2 * time.Second)
				}
			}
		},
		"split into three, five times": func(c fleet) {
			for range 5 {
				c.Split(ids(6)[:2], ids(6)[2:4], ids(6)[4:])
				c.Run(7 * time.Second)
				c.Heal()
				c.Run(5 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := started(t, 6, sim.Options{})
			owners := func() (owners int) {
				for _, id := range c.IDs() {
					if len(c.Node(id).Owned()) > 0 {
						owners++
					}
				}
				return owners
			}
			disturb(c)
			c.agree(15 * time.Second)
			if n := owners(); n < 3 {
				t.Errorf("%d of 6 own anything", n)
			}
			c.Run(31 * ttl)
			if c.check(); owners() < 6 {
				t.Errorf("%d of 6 own anything after a while", owners())
			}
		})
	}
}
