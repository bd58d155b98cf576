package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// watched fails the test unless every node has streams to a number of others, and as many
// from others.
func watched(t *testing.T, c *clustertest.Cluster, want int) {
	t.Helper()
	for _, id := range c.IDs() {
		if s := c.Agent(id).Snapshot().Stats; s.Watched != want || s.Watchers != want {
			t.Errorf("%s watches %d nodes, and %d watch it; want %d", id, s.Watched, s.Watchers, want)
		}
	}
}

// Each agent holds streams to the four that it watches, or to all others.
func TestWatchStreams(t *testing.T) { // S5.4
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("n00", "n01", "n02", "n03", "n04", "n05", "n06")
		c.WaitAgreed(10 * time.Second)
		time.Sleep(10 * time.Second)
		watched(t, c, 4)
		c.Leave("n00")
		c.Leave("n01")
		c.Leave("n02")
		c.Crash("n03")
		c.WaitAgreed(10 * time.Second)
		time.Sleep(10 * time.Second)
		watched(t, c, 2)
		c.Start("n07")
		c.WaitAgreed(10 * time.Second)
		time.Sleep(10 * time.Second)
		watched(t, c, 3)
	})
}

// proof runs a test on seven agents that hold all their watch streams.
func proof(t *testing.T, ttl time.Duration, test func(c *clustertest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.LeaseTTL = ttl }})
		c.Start("n00", "n01", "n02", "n03", "n04", "n05", "n06")
		c.WaitAgreed(10 * time.Second)
		time.Sleep(10 * time.Second)
		watched(t, c, 4)
		test(c)
	})
}

// A process that ends is known dead at once; one whose host vanishes, after half a lease.
func TestEndIsProven(t *testing.T) { // S5.4
	proof(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Crash("n03")
		c.WaitAgreed(time.Second)
	})
	proof(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Crash("n03", "n04")
		c.WaitAgreed(time.Second)
	})
	proof(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Vanish("n03")
		c.WaitAgreed(4 * time.Second) // half a lease and a second
	})
}

// None of these ends a process: each other node keeps it.
func TestNoProof(t *testing.T) {
	const pause = 4 * time.Second
	for name, fault := range map[string]func(c *clustertest.Cluster){
		"reset":     func(c *clustertest.Cluster) { c.ResetStreams("n03") },
		"all reset": func(c *clustertest.Cluster) { each(c, c.ResetStreams) },
		"pause":     func(c *clustertest.Cluster) { c.Pause("n03"); time.Sleep(pause); c.Resume("n03") },
		"split": func(c *clustertest.Cluster) {
			c.Split([]string{"n03"}, []string{"n00", "n01", "n02", "n04", "n05", "n06"})
			time.Sleep(pause) // a longer lease bears a longer silence
			c.Heal()
		},
		"pause and reset": func(c *clustertest.Cluster) {
			c.Pause("n03")
			c.ResetStreams("n03")
			time.Sleep(pause)
			c.Resume("n03")
		},
	} {
		t.Run(name, func(t *testing.T) {
			proof(t, 15*time.Second, func(c *clustertest.Cluster) {
				before := make(map[string]uint64)
				each(c, func(id string) { before[id] = c.Agent(id).Snapshot().Stats.TableChanges })
				fault(c)
				time.Sleep(10 * time.Second)
				each(c, func(id string) {
					if s := c.Agent(id).Snapshot().Stats; s.TableChanges != before[id] || s.Crashed > 0 {
						t.Errorf("%s changed its table %d times, and counts %d proofs", id, s.TableChanges-before[id], s.Crashed)
					}
				})
				watched(t, c, 4)
			})
		})
	}
}

func each(c *clustertest.Cluster, f func(id string)) {
	for _, id := range c.IDs() {
		f(id)
	}
}
