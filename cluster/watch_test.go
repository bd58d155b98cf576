package cluster_test

import (
	"context"
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

// watched fails the test unless every node watches exactly want nodes, and exactly want nodes watch it.
func watched(t *testing.T, c *clustertest.Cluster, want int) {
	t.Helper()
	for _, id := range c.IDs() {
		if s := c.Agent(id).Snapshot().Stats; s.Watched != want || s.Watchers != want {
			t.Errorf("%s watches %d nodes, and %d watch it; want %d", id, s.Watched, s.Watchers, want)
		}
	}
}

// Each agent has streams to the four nodes that it watches, or to all other nodes if there are fewer.
func TestWatchStreams(t *testing.T) {
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

// confirmation runs a test on seven agents that have opened all their watch streams.
func confirmation(t *testing.T, ttl time.Duration, test func(c *clustertest.Cluster)) {
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

// If a process ends, other nodes know within a second. If its host vanishes, they know after half a lease.
func TestEndIsProven(t *testing.T) {
	confirmation(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Crash("n03")
		c.WaitAgreed(time.Second)
	})
	confirmation(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Crash("n03", "n04")
		c.WaitAgreed(time.Second)
	})
	confirmation(t, 6*time.Second, func(c *clustertest.Cluster) {
		c.Vanish("n03")
		c.WaitAgreed(4 * time.Second) // half a lease and a second
	})
}

// None of these problems ends a process, so the tables of all nodes stay the same.
func TestUnconfirmed(t *testing.T) {
	const pause = 4 * time.Second
	for name, problem := range map[string]func(c *clustertest.Cluster){
		"reset":     func(c *clustertest.Cluster) { c.ResetStreams("n03") },
		"all reset": func(c *clustertest.Cluster) { each(c, c.ResetStreams) },
		"pause":     func(c *clustertest.Cluster) { c.Pause("n03"); time.Sleep(pause); c.Resume("n03") },
		"split": func(c *clustertest.Cluster) {
			c.Split([]string{"n03"}, []string{"n00", "n01", "n02", "n04", "n05", "n06"})
			time.Sleep(pause) // shorter than half of the lease
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
			confirmation(t, 15*time.Second, func(c *clustertest.Cluster) {
				before := make(map[string]uint64)
				each(c, func(id string) { before[id] = c.Agent(id).Snapshot().Stats.TableChanges })
				problem(c)
				time.Sleep(10 * time.Second)
				each(c, func(id string) {
					if s := c.Agent(id).Snapshot().Stats; s.TableChanges != before[id] || s.Crashed > 0 {
						t.Errorf("%s changed its table %d times, and counts %d confirmations", id, s.TableChanges-before[id], s.Crashed)
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

// Ended confirms the end of a process only if it has really ended, not if it runs, is paused or is unreachable.
func TestEnded(t *testing.T) {
	incarnation := func(c *clustertest.Cluster, id string) lease.Incarnation {
		self := c.Agent(id).Snapshot().Self
		return lease.Incarnation{Node: self.ID, Number: self.Incarnation}
	}
	for name, tt := range map[string]struct {
		problem func(c *clustertest.Cluster)
		want    bool
		at      time.Duration // maximum time until the answer
	}{
		"runs":     {func(*clustertest.Cluster) {}, false, 10 * time.Millisecond},
		"reset":    {func(c *clustertest.Cluster) { c.ResetStreams("n03") }, false, 10 * time.Millisecond},
		"ends":     {func(c *clustertest.Cluster) { c.Crash("n03") }, true, 600 * time.Millisecond},
		"vanishes": {func(c *clustertest.Cluster) { c.Vanish("n03") }, false, time.Second},
		"pauses":   {func(c *clustertest.Cluster) { c.Pause("n03") }, false, time.Second},
		"restarts": {func(c *clustertest.Cluster) { c.Restart("n03") }, true, 600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			confirmation(t, 15*time.Second, func(c *clustertest.Cluster) {
				of := incarnation(c, "n03")
				tt.problem(c)
				for _, id := range []string{"n00", "n04"} {
					began := time.Now()
					if got := c.Agent(id).Ended(context.Background(), of); got != tt.want || time.Since(began) > tt.at {
						t.Errorf("%s: ended %v after %v; want %v within %v", id, got, time.Since(began), tt.want, tt.at)
					}
					if s := c.Agent(id).Snapshot().Stats; !tt.want && s.Crashed > 0 {
						t.Errorf("%s: %d confirmations", id, s.Crashed)
					}
				}
				own := incarnation(c, "n00")
				if c.Agent("n00").Ended(context.Background(), own) {
					t.Error("the own process has ended")
				}
				if own.Number--; !c.Agent("n04").Ended(context.Background(), own) ||
					!c.Agent("n04").Ended(context.Background(), lease.Incarnation{Node: "none", Number: 1}) {
					t.Error("a former incarnation, or an unknown node, has not ended")
				}
				if name == "pauses" {
					c.Resume("n03")
				}
			})
		})
	}
}

// A watcher learns of changes of members that own nothing. A new load does not wake it.
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

// A watcher of a scope only learns of changes of the scope's members. A member whose labels no longer match is reported
// as left.
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
		// after returns the changes that the scope's watcher received within 10 s.
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
		want("the role again", n02.SetLabels(map[string]string{"role": "even"}), of("n02"), none, of("n02")) // the member joins the scope, then the agent publishes the change
	})
}
