package affinity_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// Five agents with 20 simultaneous joins each fill the nodes to the hard ceiling, and
// not above.
func TestHardCeilingOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, store: pinstore.NewMemory(), rooms: make(map[string]*affinity.Resolver)}
		f.cfg = affinity.Config{HardCeiling: 100, SoftCeiling: 80, Log: slog.New(slog.DiscardHandler)}
		f.Cluster = clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) { c.Capacity, c.Partitions = 40, 64 }})
		f.start("a", "b", "c", "d", "e")
		var wait sync.WaitGroup
		var mu sync.Mutex
		units, full := make(map[lease.NodeID]int), 0
		for id, r := range f.rooms {
			for i := range 20 {
				wait.Go(func() {
					a, err := r.Resolve(t.Context(), fmt.Sprint("room-", id, i), affinity.Demand{Units: 10})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, affinity.ErrNoCapacity):
						full++
					case err != nil || a.Source == affinity.Degraded:
						t.Errorf("%+v, %v", a, err)
					default:
						units[a.Node] += 10
					}
				})
			}
		}
		wait.Wait()
		for _, id := range f.IDs() {
			if n := units[lease.NodeID(id)]; n != 40 {
				t.Errorf("%s has rooms of %d units, with a ceiling of 40", id, n)
			}
		}
		if full != 80 {
			t.Errorf("%d of 100 rooms found no node, want 80", full)
		}
		if n := len(pins(t, f.store)); n != 20 {
			t.Errorf("%d rooms are pinned, want 20", n)
		}
	})
}
