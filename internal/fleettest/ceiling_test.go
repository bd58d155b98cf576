package fleettest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// Five agents make 20 joins each at the same time. They share one Redis, which counts for all of them. The joins fill
// the nodes to the hard ceiling, but not above it.
func TestHardCeilingOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const cost, ceiling, joins = 10, 40, 20
	with := setup{URL: redis.URL(), Capacity: ceiling, HardCeiling: 100, Budget: timeout, Settle: 10 * timeout}
	f := newFleet(t, with, "a", "b", "c", "d", "e")
	var placed, full atomic.Int64
	var wait sync.WaitGroup
	begin := make(chan struct{})
	var rooms []string
	for i, n := range f.nodes {
		for j := range joins {
			room := fmt.Sprintf("room-%d-%d", i, j)
			rooms = append(rooms, room)
			wait.Go(func() {
				<-begin
				switch a, err := n.rooms.Resolve(t.Context(), room, affinity.Demand{Units: cost}); {
				case errors.Is(err, affinity.ErrNoCapacity):
					full.Add(1)
				case err != nil || a.Source == affinity.Degraded:
					t.Errorf("%s: %+v, %v", room, a, err)
				default:
					placed.Add(1)
				}
			})
		}
	}
	close(begin)
	wait.Wait()
	units := make(map[lease.NodeID]int)
	for _, pin := range newEye(t, redis.URL()).mustPins(rooms) {
		units[pin.Node] += cost
	}
	for _, n := range f.nodes {
		if id := n.incarnation().Node; units[id] != ceiling {
			t.Errorf("%s has rooms of %d units, with a ceiling of %d", id, units[id], ceiling)
		}
	}
	if want := int64(len(f.nodes) * ceiling / cost); placed.Load() != want || full.Load() != int64(len(rooms))-want {
		t.Errorf("%d rooms found a node, and %d none; want %d of %d", placed.Load(), full.Load(), want, len(rooms))
	}
}
