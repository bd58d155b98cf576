package cluster_test

import (
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
	"github.com/roost-cluster/roost/placement/assignment"
)

const leastPartitions = 60

// inLeast runs a scenario in a bubble with a cluster that places by least
// partitions: nodes n00 and on, started together.
func inLeast(t *testing.T, n int, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	inLeastOf(t, n, leastPartitions, 3, scenario)
}

func inLeastOf(t *testing.T, n, partitions, moves int, scenario func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy = placement.LeastPartitions(1, moves)
			cfg.Partitions = partitions
		}})
		c.Start(ids(n)...)
		c.WaitAgreed(3 * time.Second)
		for !converged(c) {
			time.Sleep(10 * time.Millisecond)
		}
		first := assignment.From(c.Agent("n00").Snapshot().Table)
		for _, id := range c.IDs() {
			if got := assignment.From(c.Agent(id).Snapshot().Table); got.Digest() != first.Digest() || got == nil {
				t.Fatalf("%s says that all agree, and has assignment %d, %v", id, got.Version(), got.Digest())
			}
		}
		time.Sleep(youth) // from now on, passes are limited
		scenario(t, c)
	})
}

// youth is for how long the first coordinator levels without a limit.
const youth = 5*ttl + 3*time.Second

// skipSlow is for tests of hours, or of large tables, that take seconds under the race
// detector; make test also runs them without it.
func skipSlow(t *testing.T) {
	t.Helper()
	if testing.Short() || underRace {
		t.Skip("takes seconds")
	}
}

// waitLevel waits until all nodes agree on a table that is as even as can be.
func waitLevel(t *testing.T, c *clustertest.Cluster, within time.Duration) {
	t.Helper()
	begin := time.Now()
	for !level(c) || len(c.Disagreements()) > 0 || !converged(c) {
		if time.Since(begin) > within {
			t.Fatalf("not level within %v: %v\n%v", within, held(c), c.Disagreements())
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("level after %v", time.Since(begin))
}

func converged(c *clustertest.Cluster) bool {
	return !slices.ContainsFunc(c.IDs(), func(id string) bool { return !c.Agent(id).Converged() })
}

func level(c *clustertest.Cluster) bool {
	counts := held(c)
	return len(counts) == len(c.IDs()) && slices.Max(counts)-slices.Min(counts) <= 1
}

// held returns how many partitions each candidate has, by the first node's table.
func held(c *clustertest.Cluster) (counts []int) {
	for _, n := range c.Agent(c.IDs()[0]).Snapshot().Table.Balance().Counts {
		counts = append(counts, n)
	}
	return counts
}

// rests fails the test if anything moves in ten minutes (less under the race
// detector, which takes five times as long).
func rests(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	time.Sleep(goneFor + ttl) // deputies may become owners meanwhile
	seen := func() (v []uint64) {
		for _, id := range c.IDs() {
			s := c.Agent(id).Snapshot()
			v = append(v, s.Stats.TableChanges, assignment.From(s.Table).Version(), s.Stats.AssignmentFetches)
		}
		return v
	}
	before := seen()
	time.Sleep(restFor)
	if after := seen(); !slices.Equal(before, after) {
		t.Errorf("tables, versions or exchanges while nothing happened: %v, %v", before, after)
	}
	for _, id := range c.IDs() {
		if n := c.Agent(id).Snapshot().Stats.DecodeErrors; n > 0 {
			t.Errorf("%s could not read %d messages", id, n)
		}
	}
	c.Check()
}

// coordinator returns the node that runs for longest.
func coordinator(c *clustertest.Cluster) string {
	var first cluster.Member
	for _, m := range c.Agent(c.IDs()[0]).Members() {
		if first.ID == "" || m.Incarnation < first.Incarnation {
			first = m
		}
	}
	return string(first.ID)
}

// moves counts the partitions that are elsewhere, but for those of one node.
func moves(before, after map[placement.Partition]lease.NodeID, but lease.NodeID) (n int) {
	for p, owner := range after {
		if owner != before[p] && before[p] != but {
			n++
		}
	}
	return n
}

// S2.3: a newcomer is filled in passes of three, from nobody but the fullest, and
// then all is at rest.
func TestLeastJoin(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		if !level(c) {
			t.Fatalf("started with %v", held(c))
		}
		before := owners(c)
		c.Start("new")
		c.WaitAgreed(time.Second)
		if n := moves(before, owners(c), ""); n > 3 {
			t.Errorf("the join itself moved %d partitions", n)
		}
		waitLevel(t, c, 15*time.Second)
		if n := moves(before, owners(c), ""); n != 15 {
			t.Errorf("%d partitions moved, want 15", n)
		}
		for _, id := range c.IDs() {
			for _, b := range c.Batches(id) {
				if id != "new" && b.Version > 1 && len(b.Acquired)+len(b.Released) > 3 {
					t.Errorf("%s: one change acquired %d and released %d", id, len(b.Acquired), len(b.Released))
				}
			}
		}
		rests(t, c)
	})
}

// A leave moves only the leaver's partitions at once, and who is full gets none.
func TestLeastLeave(t *testing.T) {
	inLeast(t, 5, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Leave("n02")
		c.WaitAgreed(time.Second)
		if n := moves(before, owners(c), "n02"); n != 0 || !level(c) {
			t.Errorf("%d partitions of others moved; counts %v", n, held(c))
		}
		rests(t, c)
	})
}

// S2.4: the coordinator dies in the middle of its passes; the next one goes on
// from there, and nothing jumps.
func TestLeastCoordinatorDies(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		c.Start("new")
		c.WaitAgreed(time.Second)
		time.Sleep(3 * time.Second) // a pass or two
		if level(c) {
			t.Fatal("it was over before the coordinator died")
		}
		dies := coordinator(c)
		if dies == "new" {
			t.Fatal("the newcomer coordinates")
		}
		before := owners(c)
		c.Crash(dies)
		c.WaitAgreed(ttl + time.Second)
		if n := moves(before, owners(c), lease.NodeID(dies)); n > 6 { // the passes that it still made, and the first of the next one
			t.Errorf("%d partitions of others moved with the coordinator's death", n)
		}
		waitLevel(t, c, 20*time.Second)
		rests(t, c)
	})
}

// A node that comes back within the minute has what it had; nothing else moves.
func TestLeastRestart(t *testing.T) {
	inLeast(t, 5, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		for _, id := range []string{"n01", coordinator(c)} {
			c.Crash(id)
			c.WaitAgreed(ttl + time.Second)
			c.Start(id)
			c.WaitAgreed(2 * time.Second)
			if n := moves(before, owners(c), ""); n != 0 {
				t.Errorf("%d partitions are elsewhere after the restart of %s", n, id)
			}
		}
		rests(t, c)
	})
}

// One that stays away is followed by its deputies, and starts from nothing when it
// comes back after all.
func TestLeastGoneForGood(t *testing.T) {
	inLeast(t, 4, func(t *testing.T, c *clustertest.Cluster) {
		c.Crash("n01")
		c.WaitAgreed(ttl + time.Second)
		before := owners(c)
		time.Sleep(11 * ttl)
		if n := moves(before, owners(c), ""); n != 0 {
			t.Errorf("%d partitions moved when the deputies took over", n)
		}
		c.Start("n01")
		c.WaitAgreed(time.Second)
		if n := moves(before, owners(c), ""); n > 3 {
			t.Errorf("%d partitions moved at once to a node that was given up", n)
		}
		waitLevel(t, c, 15*time.Second)
	})
}

// S2.4: each side of a split has a coordinator that deals out the other side's
// partitions. After the heal all have one assignment, and almost everything is
// where it was, however long it took and however small the side.
func TestLeastSplit(t *testing.T) {
	for _, tt := range []struct {
		small int
		long  time.Duration
	}{{1, 20 * time.Second}, {1, 5 * time.Minute}, {2, 5 * time.Minute}} {
		t.Run(fmt.Sprintf("%d of 5 for %v", tt.small, tt.long), func(t *testing.T) {
			inLeast(t, 5, func(t *testing.T, c *clustertest.Cluster) {
				before := owners(c)
				c.Split(c.IDs()[:tt.small], c.IDs()[tt.small:])
				time.Sleep(tt.long)
				for _, side := range []string{"n00", "n04"} {
					if got := len(c.Agent(side).Owned()); got < leastPartitions/(5-tt.small) {
						t.Fatalf("%s owns %d: its side did not deal out the other's", side, got)
					}
				}
				c.Heal()
				c.WaitAgreed(30 * time.Second)
				short := tt.long < goneFor
				if n := moves(before, owners(c), ""); short && n != 0 {
					t.Errorf("%d partitions are elsewhere after a short split", n)
				} else if n > tt.small*leastPartitions/5 {
					t.Errorf("%d partitions are elsewhere after the heal, more than the smaller side had", n)
				}
				waitLevel(t, c, 30*time.Second)
				rests(t, c)
			})
		})
	}
}

const goneFor = 10 * ttl

// Levelling and news of it get through where packets are lost.
func TestLeastWithLoss(t *testing.T) {
	inLeast(t, 10, func(t *testing.T, c *clustertest.Cluster) {
		c.SetLoss(0.2)
		c.Start("new1", "new2")
		waitLevel(t, c, time.Minute)
	})
}

// S2.4: an assignment that is larger than any packet reaches a newcomer before it
// takes part: nothing but what it is given moves.
func TestLeastLarge(t *testing.T) {
	skipSlow(t)
	inLeastOf(t, 10, 16384, 500, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Start("new")
		waitLevel(t, c, 30*time.Second)
		if n := moves(before, owners(c), ""); n < 16384/11 || n > 16384/11+1 {
			t.Errorf("%d partitions moved, want %d", n, 16384/11)
		}
		for p, owner := range owners(c) {
			if owner != before[p] && owner != "new" {
				t.Fatalf("partition %d moved to %s", p, owner)
			}
		}
	})
}

// S2.4: every node says the same of why a partition is where it is; one node
// decides.
func TestLeastWhy(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		c.Start("new")
		waitLevel(t, c, 15*time.Second)
		moved := 0
		for p := range placement.Partition(leastPartitions) {
			want := c.Agent("new").Snapshot().Table.Why(p)
			if owner, _ := c.Agent("n00").OwnerOf(p); owner.ID == "new" {
				moved++
				if !strings.HasPrefix(want, coordinator(c)+" moved it from ") {
					t.Errorf("partition %d: %s; want %s to have moved it", p, want, coordinator(c))
				}
			}
			for _, id := range c.IDs() {
				if got := c.Agent(id).Snapshot().Table.Why(p); got != want {
					t.Errorf("%s says: %s; new says: %s", id, got, want)
				}
			}
		}
		if moved != 15 {
			t.Errorf("the newcomer has %d", moved)
		}
	})
}

// A node that was stopped while partitions moved comes in by the latest
// assignment.
func TestLeastPause(t *testing.T) {
	inLeast(t, 4, func(t *testing.T, c *clustertest.Cluster) {
		c.Pause("n03")
		c.Start("new")
		time.Sleep(30 * time.Second)
		c.Resume("n03")
		waitLevel(t, c, 30*time.Second)
		rests(t, c)
	})
}

// S2.3: what has been moved is not moved again before all have followed.
func TestLeastWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy = placement.LeastPartitions(1, 0)
			cfg.Partitions = leastPartitions
			cfg.LeaseTTL = time.Minute
		}})
		c.Start("n00", "n01", "n02")
		c.WaitAgreed(3 * time.Second)
		time.Sleep(6 * time.Minute)
		c.Pause("n02")
		c.Start("new")
		time.Sleep(5 * time.Second)
		if got := len(c.Agent("new").Owned()); got != 15 {
			t.Fatalf("the newcomer has %d", got)
		}
		if err := c.Agent("new").SetWeight(1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := len(c.Agent("new").Owned()); got != 15 {
			t.Errorf("the newcomer has %d: some were moved on while n02 has not followed", got)
		}
		c.Resume("n02")
		time.Sleep(30 * time.Second)
		if got := len(c.Agent("new").Owned()); got > 2 {
			t.Errorf("with a weight of 1 in 301 the newcomer has %d", got)
		}
	})
}

// A node that was told to begin on its own comes late: what it dealt out to itself
// counts for nothing.
func TestLeastBeginsAlone(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.StartWith("z", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Bootstrap = true }))
		c.WaitAgreed(time.Minute)
		if n := moves(before, owners(c), ""); n > 15 {
			t.Errorf("%d partitions moved when z came", n)
		}
		waitLevel(t, c, 30*time.Second)
	})
}

// Draining gives everything away at once; undraining takes the same back.
func TestLeastDrain(t *testing.T) { // S4.11
	inLeast(t, 4, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		id := coordinator(c)
		if err := c.Agent(id).Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := moves(before, owners(c), lease.NodeID(id)); n != 0 || len(c.Agent(id).Owned()) != 0 {
			t.Errorf("%d of others moved, %d are left", n, len(c.Agent(id).Owned()))
		}
		if err := c.Agent(id).Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitAgreed(time.Second)
		if n := moves(before, owners(c), ""); n != 0 {
			t.Errorf("%d are elsewhere after the drain", n)
		}
	})
}

// Nodes that start one by one are one start: nobody waits for passes.
func TestLeastOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Strategy = placement.LeastPartitions(1, 3) }})
		for _, id := range ids(5) {
			c.Start(id)
			time.Sleep(4 * time.Second)
		}
		waitLevel(t, c, 3*time.Second)
		rests(t, c)
	})
}

// Half of the nodes leave, and come back hours later: those that are left write on
// without them, and they begin with nothing.
func TestLeastHalfLeave(t *testing.T) {
	skipSlow(t)
	inLeast(t, 4, func(t *testing.T, c *clustertest.Cluster) {
		c.Leave("n01")
		c.Leave("n03")
		c.WaitAgreed(time.Second)
		time.Sleep(time.Hour)
		before := owners(c)
		c.Crash("n00")
		c.WaitAgreed(ttl + time.Second)
		c.Start("n00")
		c.WaitAgreed(2 * time.Second)
		time.Sleep(10 * time.Second)
		if n := moves(before, owners(c), ""); n != 0 {
			t.Errorf("%d partitions are elsewhere after a restart", n)
		}
		c.Start("n01", "n03")
		c.WaitAgreed(2 * time.Second)
		if n := moves(before, owners(c), ""); n > 3 {
			t.Errorf("%d partitions moved at once to nodes that had left long ago", n)
		}
		waitLevel(t, c, time.Minute)
		rests(t, c)
	})
}

// All nodes are replaced by others, again and again: nothing is kept of those that
// are gone.
func TestLeastTurnover(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		for generation := range 5 {
			for _, id := range c.IDs() {
				c.Start(fmt.Sprintf("%s.%d", id[:3], generation))
				c.WaitAgreed(2 * time.Second)
				if generation%2 == 0 {
					c.Leave(id)
				} else {
					c.Crash(id)
				}
				c.WaitAgreed(ttl + time.Second)
			}
		}
		waitLevel(t, c, time.Minute)
		rests(t, c)
		var live []lease.NodeID
		for _, id := range c.IDs() {
			live = append(live, lease.NodeID(id))
		}
		a := assignment.From(c.Agent(c.IDs()[0]).Snapshot().Table)
		if got := a.Owners(); !slices.Equal(got, live) {
			t.Errorf("owners on record: %v, want %v", got, live)
		}
	})
}

// A node begins alone after the others have been together for long, some of whose
// partitions never moved.
func TestLeastLateLoner(t *testing.T) {
	inLeast(t, 1, func(t *testing.T, c *clustertest.Cluster) {
		c.Start("n01", "n02")
		waitLevel(t, c, time.Minute)
		before := owners(c)
		c.StartWith("z", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Bootstrap = true }))
		c.WaitAgreed(time.Minute)
		if n := moves(before, owners(c), ""); n > 3 {
			t.Errorf("%d partitions moved at once", n)
		}
		waitLevel(t, c, time.Minute)
		rests(t, c)
	})
}

// News puts heartbeats forward; passes must not wait for a quiet time.
func TestLeastWhileBusy(t *testing.T) {
	inLeast(t, 3, func(t *testing.T, c *clustertest.Cluster) {
		c.Start("new")
		boss := c.Agent(coordinator(c))
		for i := range uint32(20) {
			if err := boss.SetWeight(100 + i%2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		if got := len(c.Agent("new").Owned()); got < 14 {
			t.Errorf("after half a minute the newcomer has %d", got)
		}
	})
}

// A ramp would have passes take from a restarted node what it was just given back.
func TestLeastDoesNotRamp(t *testing.T) {
	inLeast(t, 4, func(t *testing.T, c *clustertest.Cluster) {
		before := owners(c)
		c.Crash("n02")
		c.WaitAgreed(ttl + time.Second)
		c.StartWith("n02", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.RampUp = time.Minute }))
		c.WaitAgreed(2 * time.Second)
		if n := moves(before, owners(c), ""); n != 0 {
			t.Errorf("%d partitions are elsewhere after the restart", n)
		}
		rests(t, c)
		if n := moves(before, owners(c), ""); n != 0 {
			t.Errorf("%d partitions are elsewhere later", n)
		}
	})
}

// Most nodes die for good. Those that are left could be the smaller side of a split,
// and change nothing for an hour; then they go on without the others.
func TestLeastMostAreGone(t *testing.T) {
	skipSlow(t)
	inLeast(t, 5, func(t *testing.T, c *clustertest.Cluster) {
		c.Crash("n00", "n01", "n02")
		c.WaitAgreed(ttl + time.Second)
		time.Sleep(50 * time.Minute)
		recorded := func() []lease.NodeID { return assignment.From(c.Agent("n03").Snapshot().Table).Owners() }
		if got := recorded(); len(got) != 5 {
			t.Errorf("owners on record after 50 minutes: %v", got)
		}
		time.Sleep(15 * time.Minute)
		if got := recorded(); !slices.Equal(got, []lease.NodeID{"n03", "n04"}) {
			t.Errorf("owners on record after 65 minutes: %v", got)
		}
		c.Start("n00")
		waitLevel(t, c, time.Minute)
		rests(t, c)
	})
}

// A node that was stopped for more than an hour comes back where it sees nobody. It
// was away, and not the others: it must not take them for gone.
func TestLeastStoppedAndAlone(t *testing.T) {
	skipSlow(t)
	inLeast(t, 5, func(t *testing.T, c *clustertest.Cluster) {
		away := coordinator(c)
		c.Pause(away)
		time.Sleep(65 * time.Minute)
		others := slices.DeleteFunc(c.IDs(), func(id string) bool { return id == away })
		before := c.Agent(others[0]).Snapshot().Table
		c.Split([]string{away}, others)
		c.Resume(away)
		time.Sleep(5 * time.Minute)
		if got := len(c.Agent(away).Owned()); got != leastPartitions {
			t.Fatalf("alone it owns %d", got)
		}
		c.Heal()
		c.WaitAgreed(30 * time.Second)
		if moves := placement.Diff(before, c.Agent(others[0]).Snapshot().Table).Moves; len(moves) > 6 { // two passes
			t.Errorf("%d partitions moved when it was back", len(moves))
		}
		waitLevel(t, c, time.Minute)
		rests(t, c)
	})
}
