package affinity

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Kill ends the resolver like kill -9 of its process, without notifying the store.
func (r *Resolver) Kill() {
	r.work.close.Do(func() {})
	r.work.closed.Store(true)
	r.work.stop()
	r.work.wait.Wait()
	r.feeds.moves.close()
	r.feeds.pressures.Close()
	r.work.endLog()
}

// Changed notifies the resolver of a change, as a store does.
func (r *Resolver) Changed(room string) { r.changed(room) }

// TakeLocks acquires every lock of the resolver and of its hostings once.
func (r *Resolver) TakeLocks() {
	r.Stats() // host table and circuit breaker
	r.reserved.Cancel(capacity.Reservation{})
	r.liveness.Reclaiming(time.Now())
	r.work.rooms.take(0)
	r.work.partitions.take(0)
	r.feeds.moves.resync()
	locks := []*sync.Mutex{&r.met.mu, &r.shared.looks.mu}
	r.hosts.mu.Lock()
	for _, h := range r.hosts.rooms {
		locks = append(locks, &h.mu)
	}
	r.hosts.mu.Unlock()
	for _, mu := range locks {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // it is free
	}
}

// SweepSoon makes the resolver search a partition for rooms of dead nodes.
func (r *Resolver) SweepSoon(p placement.Partition) { r.work.partitions.add(p) }

// Forget evicts a room from the pin cache.
func (r *Resolver) Forget(room string) { r.cache.Evict(room) }

// CountLooks counts the checks of nodes from now on.
func (r *Resolver) CountLooks() *atomic.Int64 {
	n, ended := new(atomic.Int64), r.shared.looks.ended
	r.shared.looks.ended = func(ctx context.Context, at lease.Incarnation) bool {
		n.Add(1)
		return ended(ctx, at)
	}
	return n
}

// HoldLooks makes each check of a node last until the channel is closed, but at most a second.
func (r *Resolver) HoldLooks() chan struct{} {
	held := make(chan struct{})
	r.shared.looks.ended = func(context.Context, lease.Incarnation) bool {
		select {
		case <-held:
		case <-time.After(time.Second):
		}
		return false
	}
	return held
}

// Long is -long.
var Long = modelLong
