package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

const (
	leastPartitions = 60
	goneFor         = 10 * ttl              // until the deputies of an absent owner take over
	youth           = 5*ttl + 3*time.Second // the first coordinator levels without a limit
)

func least(partitions, moves int) sim.Options {
	return sim.Options{Config: func(cfg *node.Config) {
		cfg.Strategy, cfg.Partitions = placement.LeastPartitions(1, moves), partitions
	}}
}

// startedLeast returns n nodes that started together with the strategy least-partitions, long enough ago that passes
// are limited.
func startedLeast(t *testing.T, n int) fleet {
	t.Helper()
	c := started(t, n, least(leastPartitions, 3))
	c.await("convergence", 10*time.Second, c.converged)
	first := c.assignment("n00")
	for _, id := range c.IDs() {
		if got := c.assignment(id); got == nil || got.Digest() != first.Digest() {
			t.Fatalf("%s says that all agree, and has assignment %d, %v", id, got.Version(), got.Digest())
		}
	}
	c.Run(youth)
	return c
}

func (c fleet) assignment(id string) *assignment.Assignment {
	return assignment.From(c.Node(id).View().Table)
}

// level waits until all nodes agree on a table that is as even as can be.
func (c fleet) level(limit time.Duration) {
	c.t.Helper()
	took := c.await("level, agreement and convergence", limit, func() bool {
		return c.isLevel() && c.converged() && len(c.Disagreements()) == 0
	})
	c.t.Logf("level after %v", took)
}

func (c fleet) isLevel() bool {
	counts := c.held()
	return len(counts) == len(c.IDs()) && slices.Max(counts)-slices.Min(counts) <= 1
}

// held returns how many partitions each candidate has in the table of the first node.
func (c fleet) held() (counts []int) {
	for _, n := range c.Node(c.IDs()[0]).View().Table.Balance().Counts {
		counts = append(counts, n)
	}
	return counts
}

// rests fails the test if a partition moves or an assignment is exchanged within ten minutes.
func (c fleet) rests() {
	c.t.Helper()
	c.Run(goneFor + ttl) // deputies may become owners in this time
	seen := func() (v []uint64) {
		for _, id := range c.IDs() {
			s := c.Node(id).View().Stats
			v = append(v, s.TableChanges, c.assignment(id).Version(), s.AssignmentFetches)
		}
		return v
	}
	before := seen()
	c.Run(10 * time.Minute)
	if after := seen(); !slices.Equal(before, after) {
		c.t.Errorf("tables, versions or exchanges while nothing happened: %v, %v", before, after)
	}
	for _, id := range c.IDs() {
		if n := c.Node(id).View().Stats.DecodeErrors; n > 0 {
			c.t.Errorf("%s could not read %d messages", id, n)
		}
	}
	c.check()
}

// coordinator returns the node that has run the longest.
func (c fleet) coordinator() string {
	members := c.Node(c.IDs()[0]).View().Live.Members
	return string(slices.MinFunc(members, func(a, b lease.Member) int {
		return int(int64(a.Incarnation) - int64(b.Incarnation))
	}).ID)
}

// atMost fails the test if more than n partitions moved since before, not counting the partitions of one node.
func (c fleet) atMost(n int, before []lease.NodeID, but lease.NodeID, when string) {
	c.t.Helper()
	moved := slices.DeleteFunc(c.moved(before), from(but))
	if len(moved) > n {
		c.t.Errorf("%d partitions moved %s, want at most %d; counts %v", len(moved), when, n, c.held())
	}
}

// A newcomer gets its share in passes of three partitions. After that, nothing moves.
func TestLeastJoin(t *testing.T) {
	c := startedLeast(t, 3)
	if !c.isLevel() {
		t.Fatalf("started with %v", c.held())
	}
	before := c.Owners()
	c.Start("new")
	c.agree(time.Second)
	c.atMost(3, before, "", "at the join")
	c.level(15 * time.Second)
	if n := len(c.moved(before)); n != 15 {
		t.Errorf("%d partitions moved, want 15", n)
	}
	for _, id := range ids(3) {
		for _, b := range c.Node(id).Batches() {
			if b.Version > 1 && len(b.Acquired)+len(b.Released) > 3 {
				t.Errorf("%s: one change acquired %d and released %d", id, len(b.Acquired), len(b.Released))
			}
		}
	}
	c.rests()
}

// The coordinator crashes in the middle of its passes. The next coordinator continues from there.
func TestLeastCoordinatorDies(t *testing.T) {
	c := startedLeast(t, 3)
	c.Start("new")
	c.agree(time.Second)
	c.Run(3 * time.Second) // a pass or two
	dies := c.coordinator()
	if c.isLevel() || dies == "new" {
		t.Fatalf("level before the coordinator died: %v; coordinator: %s", c.isLevel(), dies)
	}
	before := c.Owners()
	c.Crash(dies)
	c.agree(ttl + time.Second)
	c.atMost(6, before, lease.NodeID(dies), "at the death of the coordinator") // last passes of the old, first of the new
	c.level(20 * time.Second)
	c.rests()
}

// A node that returns within a minute gets back the partitions that it had, and nothing else moves. SlowStart does not
// apply to this strategy, because passes would take away what the node has just got back.
func TestLeastRestart(t *testing.T) {
	c := startedLeast(t, 5)
	before := c.Owners()
	for i, id := range []string{"n01", c.coordinator()} {
		c.Crash(id)
		c.agree(ttl + time.Second)
		c.StartWith(id, sim.Setup{Config: func(cfg *node.Config) { cfg.SlowStart = time.Duration(i) * time.Minute }})
		c.agree(2 * time.Second)
		c.atMost(0, before, "", "by a restart of "+id)
	}
	c.rests()
	c.atMost(0, before, "", "later")
}

// Each side of a split has a coordinator, which assigns the partitions of the other side. After the split, all nodes
// have the same assignment, and almost every partition is back on its old owner, no matter how long the split lasted
// and how small one side was.
func TestLeastSplit(t *testing.T) {
	for _, tt := range []struct {
		small int
		long  time.Duration
	}{{1, 20 * time.Second}, {1, 5 * time.Minute}, {2, 5 * time.Minute}} {
		t.Run(fmt.Sprintf("%d of 5 for %v", tt.small, tt.long), func(t *testing.T) {
			c := startedLeast(t, 5)
			before := c.Owners()
			c.Split(c.IDs()[:tt.small], c.IDs()[tt.small:])
			c.Run(tt.long)
			for _, side := range []string{"n00", "n04"} {
				if got := len(c.Node(side).Owned()); got < leastPartitions/(5-tt.small) {
					t.Fatalf("%s owns %d: its side did not assign the partitions of the other", side, got)
				}
			}
			c.Heal()
			c.agree(30 * time.Second)
			most := tt.small * leastPartitions / 5 // what the smaller side owned
			if tt.long < goneFor {
				most = 0
			}
			c.atMost(most, before, "", "by the split")
			c.level(30 * time.Second)
			c.rests()
		})
	}
}

// Every node gives the same reason why a partition is where it is.
func TestLeastWhy(t *testing.T) {
	c := startedLeast(t, 3)
	before := c.Owners()
	c.Start("new")
	c.level(15 * time.Second)
	for _, m := range c.moved(before) {
		if why := c.Node("new").View().Table.Why(m.partition); !strings.HasPrefix(why, c.coordinator()+" moved it from ") {
			t.Errorf("partition %d: %s; want %s to have moved it", m.partition, why, c.coordinator())
		}
	}
	for p := range placement.Partition(leastPartitions) {
		want := c.Node("new").View().Table.Why(p)
		for _, id := range c.IDs() {
			if got := c.Node(id).View().Table.Why(p); got != want {
				t.Errorf("%s says: %s; new says: %s", id, got, want)
			}
		}
	}
}

// A partition that has moved does not move again before all nodes know about the first move.
func TestLeastWaitsForAll(t *testing.T) {
	c := newFleet(t, sim.Options{Config: func(cfg *node.Config) {
		least(leastPartitions, 0).Config(cfg)
		cfg.LeaseTTL = time.Minute
	}})
	c.Start("n00", "n01", "n02")
	c.agree(3 * time.Second)
	c.Run(6 * time.Minute)
	c.Pause("n02")
	p := c.StartWith("new", sim.Setup{})
	c.Run(5 * time.Second)
	if got := len(p.Owned()); got != 15 {
		t.Fatalf("the newcomer has %d", got)
	}
	p.SetWeight(1)
	c.Run(10 * time.Second)
	if got := len(p.Owned()); got != 15 {
		t.Errorf("the newcomer has %d: some moved on while n02 has not followed", got)
	}
	c.Resume("n02")
	c.Run(30 * time.Second)
	if got := len(p.Owned()); got > 2 {
		t.Errorf("with a weight of 1 in 301 the newcomer has %d", got)
	}
}

// A node that started alone joins a cluster later. Its own assignment is ignored, both if the other nodes started
// together and if they joined one by one.
func TestLeastBeginsAlone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) fleet
		most  int
	}{
		{"started together", func(t *testing.T) fleet { t.Helper(); return startedLeast(t, 3) }, 15},
		{"grown", func(t *testing.T) fleet {
			t.Helper()
			c := startedLeast(t, 1)
			c.Start("n01", "n02")
			c.level(time.Minute)
			return c
		}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.start(t)
			before := c.Owners()
			c.StartWith("z", sim.Setup{Bootstrap: true})
			c.agree(time.Minute)
			c.atMost(tt.most, before, "", "at once")
			c.level(time.Minute)
			c.rests()
		})
	}
}

// A drain moves all partitions of a node in one change. When the drain ends, the node gets the same partitions back.
func TestLeastDrain(t *testing.T) {
	c := startedLeast(t, 4)
	before := c.Owners()
	id := c.coordinator()
	c.drain(id)
	c.atMost(0, before, lease.NodeID(id), "from others at a drain")
	c.undrain(id)
	c.agree(time.Second)
	c.atMost(0, before, "", "by a drain and its end")
}

// Nodes that start one after another within a short time count as started together, so no node waits for passes.
func TestLeastOneByOne(t *testing.T) {
	c := newFleet(t, least(placement.DefaultPartitions, 3))
	for _, id := range ids(5) {
		c.Start(id)
		c.Run(4 * time.Second)
	}
	c.level(3 * time.Second)
	c.rests()
}

// Half of the nodes leave, and return hours later. Meanwhile, the other nodes change the assignment, and the returning
// nodes start without partitions.
func TestLeastHalfLeave(t *testing.T) {
	c := startedLeast(t, 4)
	c.Leave("n01")
	c.Leave("n03")
	c.agree(time.Second)
	c.Run(time.Hour)
	before := c.Owners()
	c.Crash("n00")
	c.agree(ttl + time.Second)
	c.Start("n00")
	c.agree(2 * time.Second)
	c.Run(10 * time.Second)
	c.atMost(0, before, "", "by a restart")
	c.Start("n01", "n03")
	c.agree(2 * time.Second)
	c.atMost(3, before, "", "at once, to nodes that had left long ago")
	c.level(time.Minute)
	c.rests()
}

// All nodes are replaced several times. The assignment keeps no trace of the old nodes.
func TestLeastTurnover(t *testing.T) {
	c := startedLeast(t, 3)
	for generation := range 5 {
		for _, id := range c.IDs() {
			c.Start(fmt.Sprintf("%s.%d", id[:3], generation))
			c.agree(2 * time.Second)
			if generation%2 == 0 {
				c.Leave(id)
			} else {
				c.Crash(id)
			}
			c.agree(ttl + time.Second)
		}
	}
	c.level(time.Minute)
	c.rests()
	first := c.Node(c.IDs()[0])
	if a := c.assignment(first.ID); !slices.Equal(a.Owners(), first.Members()) || !slices.Equal(a.Voters(), first.Members()) {
		t.Errorf("on record are owners %v and voters %v, want %v", a.Owners(), a.Voters(), first.Members())
	}
}

// Frequent changes make the coordinator send extra heartbeats. Passes continue anyway, without waiting for a quiet
// period.
func TestLeastWhileBusy(t *testing.T) {
	c := startedLeast(t, 3)
	c.Start("new")
	for i := range uint32(20) {
		c.Node(c.coordinator()).SetWeight(100 + i%2)
		c.Run(1500 * time.Millisecond)
	}
	if got := len(c.Node("new").Owned()); got < 14 {
		t.Errorf("after half a minute the newcomer has %d", got)
	}
}

// Most nodes crash and never return. The remaining nodes might be the smaller side of a split, so they keep the dead
// nodes on record for an hour. Then they continue without them.
func TestLeastMostAreGone(t *testing.T) {
	c := startedLeast(t, 5)
	c.Crash("n00", "n01", "n02")
	c.agree(ttl + time.Second)
	c.Run(50 * time.Minute)
	if got := c.assignment("n03").Owners(); len(got) != 5 {
		t.Errorf("owners on record after 50 minutes: %v", got)
	}
	c.Run(15 * time.Minute)
	if got := c.assignment("n03").Owners(); !slices.Equal(got, []lease.NodeID{"n03", "n04"}) {
		t.Errorf("owners on record after 65 minutes: %v", got)
	}
	c.Start("n00")
	c.level(time.Minute)
	c.rests()
}

// A node was paused for more than an hour, and sees no other node when it continues. It must not conclude that the
// other nodes are lost permanently, because it was away itself.
func TestLeastPausedAndAlone(t *testing.T) {
	c := startedLeast(t, 5)
	away := c.coordinator()
	others := slices.DeleteFunc(c.IDs(), func(id string) bool { return id == away })
	c.Pause(away)
	c.Run(65 * time.Minute)
	before := c.Node(others[0]).View().Table
	c.Split([]string{away}, others)
	c.Resume(away)
	c.Run(5 * time.Minute)
	if got := len(c.Node(away).Owned()); got != leastPartitions {
		t.Fatalf("alone it owns %d", got)
	}
	c.Heal()
	c.agree(30 * time.Second)
	if moves := placement.Diff(before, c.Node(others[0]).View().Table).Moves; len(moves) > 6 { // two passes
		t.Errorf("%d partitions moved when it was back", len(moves))
	}
	c.level(time.Minute)
	c.rests()
}
