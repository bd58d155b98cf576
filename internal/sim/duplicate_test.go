package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// A process is started under the id of a process that is paused or running. The earlier process owns nothing as soon as
// it hears of the later process, and then ends.
func TestTwoLives(t *testing.T) {
	const learn = 300 * time.Millisecond // how long it takes to learn of the later process, at 30 % loss
	pauses := []time.Duration{0, 500 * time.Millisecond, 4 * time.Second, 5500 * time.Millisecond, 7 * time.Second, 20 * time.Second}
	starts := []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}
	for seed, loss := range []float64{0, 0, 0.3, 0.3} {
		for _, pause := range pauses {
			for _, before := range starts {
				if before > pause {
					continue
				}
				c := started(t, 5, sim.Options{Seed: uint64(10 + seed), Loss: loss}) // at 30 % loss, one run in a hundred takes longer
				earlier := c.Node("n01")
				c.Pause("n01")
				c.Run(pause - before)
				c.Start("n01")
				c.Run(before)
				earlier.Resume()
				later := c.Node("n01")
				var both time.Duration
				for earlier.Duplicate() == nil && c.Elapsed() < time.Minute {
					c.Run(10 * time.Millisecond)
					if earlier.Live() && len(earlier.Owned()) > 0 && later.Live() && len(later.Owned()) > 0 {
						both += 10 * time.Millisecond
					}
				}
				if earlier.Duplicate() == nil || later.Duplicate() != nil || both > learn || (loss == 0 && both > 0) {
					t.Errorf("seed %d, paused %v, the later started %v before its end: both own for %v, ended: %v",
						seed, pause, before, both, earlier.Duplicate() != nil)
				}
				c.agree(ttl)
			}
		}
	}
}

// The same happens if there is no other node. Then each of the two processes has to hear of the other process directly.
func TestTwoLivesAlone(t *testing.T) {
	c := started(t, 1, sim.Options{})
	earlier := c.Node("n00")
	c.Start("n00")
	c.await("the earlier process ends", 2*ttl, func() bool { return earlier.Duplicate() != nil })
	if by := earlier.Duplicate(); string(by.ID) != "n00" || by.Addr != c.Node("n00").Addr || len(earlier.Owned()) > 0 || earlier.Live() {
		t.Errorf("it ended for %v, owns %d, live: %v", by, len(earlier.Owned()), earlier.Live())
	}
	c.agree(ttl)
}

// A process restarts after its clock was set back, and finds a record with its id and a later start. It owns nothing
// until the process of that record has been silent for a TTL.
func TestClockSetBack(t *testing.T) {
	for _, gone := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, 40 * time.Second} {
		c := started(t, 5, sim.Options{Seed: 1})
		past := c.Node("n01").Addr
		c.Crash("n01")
		c.Run(gone)
		p := c.StartWith("n01", sim.Setup{Clock: -time.Hour})
		c.await("the node suspects a duplicate", time.Second, func() bool { return c.inPhase(node.Isolated, "n01") })
		all := p.View().Holds
		if len(all) == 0 || all[0].Cause != node.CauseDuplicate || !strings.Contains(all[0].Reason, "another process, at "+past) {
			t.Errorf("the node is isolated: %v", all)
		}
		c.await("the node owns partitions", ttl+time.Second, func() bool {
			if len(p.Owned()) > 0 && c.inPhase(node.Isolated, "n01") {
				t.Fatal("the node owns partitions while it suspects a duplicate")
			}
			return len(p.Owned()) > 0
		})
		if p.Duplicate() != nil {
			t.Error("the node ended")
		}
		c.agree(ttl)
	}
}
