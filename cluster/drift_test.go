package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// disguised is another strategy under the name of rendezvous, as a faulty build
// might have it.
type disguised struct{ placement.Strategy }

func (disguised) Name() string { return placement.Rendezvous().Name() }

func TestDriftIsCounted(t *testing.T) { // S4.7
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		time.Sleep(5 * time.Second)
		last := c.Agent("n00").Snapshot().Stats
		grown := func() (drifts uint64, by time.Duration) {
			s := c.Agent("n00").Snapshot().Stats
			drifts, by = s.Drifts-last.Drifts, s.DriftTime-last.DriftTime
			last = s
			return drifts, by
		}
		within := func(what string, drifts, least, most uint64, by, shortest, longest time.Duration) {
			t.Helper()
			if drifts < least || drifts > most || by < shortest || by > longest {
				t.Errorf("%s: %d drifts, %v in all; want %d to %d, %v to %v", what, drifts, by, least, most, shortest, longest)
			}
		}

		time.Sleep(10 * time.Minute)
		n, by := grown()
		within("ten minutes of rest", n, 0, 0, by, 0, 0)

		c.Start("n03")
		c.WaitAgreed(time.Second)
		time.Sleep(5 * time.Second)
		n, by = grown()
		within("a join", n, 1, 3, by, time.Millisecond, 2*time.Second)

		c.StartWith("odd", clustertest.WithConfig(func(c *cluster.Config) { c.Strategy = disguised{placement.Modulo()} }))
		time.Sleep(10 * time.Second) // it is in
		grown()
		time.Sleep(10 * time.Minute)
		n, by = grown()
		within("ten minutes beside another table", n, 0, 0, by, 10*time.Minute-5*time.Second, 10*time.Minute+5*time.Second)
		if d := c.Agent("n00").Snapshot().Drift(); d != 1 {
			t.Errorf("%d members drift, want 1", d)
		}

		c.Pause("n00")
		time.Sleep(10 * time.Minute)
		c.Resume("n00")
		time.Sleep(10 * time.Second)
		n, by = grown()
		within("ten minutes of standing still", n, 1, 3, by, time.Second, 15*time.Second)

		c.Crash("odd")
		time.Sleep(2 * ttl)
		grown()
		time.Sleep(10 * time.Minute)
		n, by = grown()
		within("ten minutes after it", n, 0, 0, by, 0, 0)
	})
}
