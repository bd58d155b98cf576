package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// With Network Local, a busy machine may stop a process for several seconds. No lease ends, and no node is fenced. New
// nodes are ready within half a second.
func TestLocalBearsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Network = cluster.Local }})
		begin := time.Now()
		c.Start("a", "b", "c")
		c.WaitAgreed(time.Second)
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("ready after %v", took)
		} else {
			t.Logf("ready after %v", took)
		}
		b := c.Agent("b")
		incarnation := b.Snapshot().Self.Incarnation
		for _, pause := range []time.Duration{1500 * time.Millisecond, 4 * time.Second} {
			c.Pause("b")
			time.Sleep(pause)
			if n := len(c.Agent("a").Members()); n != 3 {
				t.Errorf("%d members after a pause of %v", n, pause)
			}
			c.Resume("b")
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				if s := b.Snapshot(); s.Self.State != lease.Active || s.Self.Incarnation != incarnation {
					t.Fatalf("after a pause of %v it is %v", pause, s.Self.State)
				}
			}
		}
		left := time.Now()
		c.Leave("c")
		for len(c.Agent("a").Members()) != 2 {
			time.Sleep(time.Millisecond)
		}
		t.Logf("left after %v", time.Since(left))
	})
}
