package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
)

// A watcher learns of changes of members that own nothing, and is not woken by loads.
func TestWatchSeesChangesOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		idle := c.StartWith("idle", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Weight, cfg.StartDraining = 7, true }))
		c.WaitAgreed(3 * time.Second)
		time.Sleep(10 * time.Second)
		a := c.Agent("n00")
		batches := a.Subscribe(t.Context())
		next := func(what string) events.Batch {
			t.Helper()
			select {
			case b := <-batches:
				return b
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no batch", what)
				return events.Batch{}
			}
		}
		changed := func(what string, change func(), of func(*cluster.Member) bool) {
			t.Helper()
			change()
			b := next(what)
			m, _ := a.Member("idle")
			if !slices.Equal(b.Changed, []lease.NodeID{"idle"}) || len(b.Moved)+len(b.Joined)+len(b.Left) > 0 || !of(m) {
				t.Errorf("%s: %+v, and the member is %+v", what, b, m)
			}
		}
		if b := next("first"); !b.Full || len(b.Changed) > 0 {
			t.Errorf("the first batch is %+v", b)
		}
		changed("weight", func() {
			if err := idle.SetWeight(9); err != nil {
				t.Error(err)
			}
		}, func(m *cluster.Member) bool { return m.Weight == 9 })
		changed("weight to 0", func() {
			if err := idle.SetWeight(0); err != nil {
				t.Error(err)
			}
		}, func(m *cluster.Member) bool { return m.Weight == 0 })
		changed("state", func() {
			if err := idle.Undrain(t.Context()); err != nil {
				t.Error(err)
			}
		}, func(m *cluster.Member) bool { return m.State == lease.Active })

		_ = idle.SetLoad(17)
		time.Sleep(30 * time.Second)
		if m, _ := a.Member("idle"); m.Load != 17 {
			t.Errorf("its load is %d", m.Load)
		}
		select {
		case b := <-batches:
			t.Errorf("after a change of load alone: %+v", b)
		default:
		}
	})
}
