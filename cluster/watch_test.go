package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

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
