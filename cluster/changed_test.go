package cluster_test

import (
	"slices"
	"sync"
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

// A watcher of a scope learns of changes of the scope's members, and of no others. A member whose labels no
// longer match leaves.
func TestScopeWatchSeesChangesOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 4, clustertest.Options{Config: roles}) // n00 and n02 are even
		scope, err := c.Agent("n00").Scope("even", ofRole("even"))
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var batches []events.Batch
		go func() {
			for b := range scope.Watch(t.Context()) {
				mu.Lock()
				batches = append(batches, b)
				mu.Unlock()
			}
		}()
		// after returns what the scope's watcher received because of a change.
		after := func(change error) (changed, left, joined []lease.NodeID) {
			t.Helper()
			if change != nil {
				t.Fatal(change)
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			for _, b := range batches {
				changed, left, joined = append(changed, b.Changed...), append(left, b.Left...), append(joined, b.Joined...)
			}
			batches = nil
			return changed, left, joined
		}
		want := func(what string, change error, wantChanged, wantLeft, wantJoined []lease.NodeID) {
			t.Helper()
			changed, left, joined := after(change)
			if !slices.Equal(changed, wantChanged) || !slices.Equal(left, wantLeft) || !slices.Equal(joined, wantJoined) {
				t.Errorf("%s: changed %v, left %v, joined %v; want %v, %v, %v", what, changed, left, joined, wantChanged, wantLeft, wantJoined)
			}
		}
		n01, n02, none := c.Agent("n01"), c.Agent("n02"), []lease.NodeID(nil)
		of := func(ids ...lease.NodeID) []lease.NodeID { return ids }

		want("start", nil, none, none, of("n00", "n02"))
		want("a label of a member", n02.SetLabels(map[string]string{"role": "even", "disk": "full"}), of("n02"), none, none)
		want("a label of another one", n01.SetLabels(map[string]string{"role": "odd", "disk": "full"}), none, none, none)
		want("the weight of a member", n02.SetWeight(0), of("n02"), none, none)
		want("the state of a member", n02.Drain(t.Context()), of("n02"), none, none)
		want("the load of a member", n02.SetLoad(17), none, none, none)
		want("another role", n02.SetLabels(map[string]string{"role": "odd"}), none, of("n02"), none)
		want("the role again", n02.SetLabels(map[string]string{"role": "even"}), of("n02"), none, of("n02")) // joined, then published
	})
}
