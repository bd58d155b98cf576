package affinity

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/placement"
)

// Resolve returns where a room lives. It pins a room without a pin to the owner of the room's partition if
// that node has headroom for the demand, or else to the least loaded node with headroom. All concurrent
// callers, on any node, get the same answer.
//
// It takes no round trip to the store if the pin is cached, and otherwise one. It takes a second one if a pin
// that was known here is gone, and up to three more if the pin names a node that has just died. If the store
// does not answer within Config.Budget, the assignment is Degraded: the last known node, or the node of the
// hash.
//
// It fails with ErrName, ErrDemand, ErrRequire, ErrNoCapacity, ErrChanged (after several concurrent changes),
// ErrSettings, ErrClosed, ErrFenced, the errors of Agent.Place, or ctx.Err() if ctx ends before the budget is
// used up. With Config.StrictCeiling, it also fails with ErrStore for a new room while the store does not answer.
func (r *Resolver) Resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	ctx, end := r.trace(ctx, "resolve", room)
	if end == nil {
		return r.resolve(ctx, room, d)
	}
	a, err := r.resolve(ctx, room, d)
	end(a, err)
	return a, err
}

// trace notifies the tracer, if there is one.
func (r *Resolver) trace(ctx context.Context, call, room string) (context.Context, func(Assignment, error)) {
	if r.cfg.Tracer == nil {
		return ctx, nil
	}
	return r.cfg.Tracer.Begin(ctx, call, room)
}

func (r *Resolver) resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	faulty := d.Validate()
	if faulty == nil {
		if a, ok := r.cached(room); ok { // a cached room has a valid name
			return a, nil
		}
	}
	if err := errors.Join(CheckName(room), faulty); err != nil {
		return Assignment{}, err
	}
	began := time.Now()
	defer func() { r.counts.asked.Add(time.Since(began)) }()
	got, err := r.ask(ctx, began.Add(r.cfg.Budget), &r.shared.resolve, room, d, false, func() (settled, bool) {
		a, ok := r.cached(room) // another caller may have got an answer in the meantime
		return settled{Assignment: a}, ok
	})
	return got.Assignment, err
}

// cached returns the room's assignment from the pin cache, if the cache has a fresh pin to a live node.
func (r *Resolver) cached(room string) (Assignment, bool) {
	e := r.cache.Get(room)
	if e == nil || !r.cache.IsFresh(e) || r.work.closed.Load() { // the store does not notify after Close
		return Assignment{}, false
	}
	s := r.agent.Snapshot()
	node := liveness.Live(s, e.Pin.Incarnation)
	if node == nil || s.Table == nil || s.Fenced {
		return Assignment{}, false
	}
	r.counts.add(Cached)
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: e.Pin.Incarnation, Epoch: e.Pin.Epoch,
		Source: Cached, Reason: "already pinned, from the cache", Member: node,
	}, true
}

// settled is an answer of the store, and counts from before the store was asked, because the answer proves
// nothing about a later loss or fence. A caller may get it later.
type settled struct {
	Assignment
	generation uint64 // of the pin cache
	fences     uint64 // of the agent
	ends       uint64 // of hostings here: see hostTable.endsOf
}

// ask settles a room with the store until the given time, unless the shortcut has an answer. Concurrent
// callers for the same room in the same flight share the answer. serves is set if they are about to serve the
// room here.
func (r *Resolver) ask(
	ctx context.Context,
	until time.Time,
	flight *singleflight.Group,
	room string,
	d Demand,
	serves bool,
	shortcut func() (settled, bool),
) (settled, error) {
	answer := flight.DoChan(room, func() (any, error) {
		if got, ok := shortcut(); ok {
			return got, nil
		}
		before := settled{generation: r.cache.Generation(), fences: r.agent.Snapshot().Stats.Fences, ends: r.hosts.endsOf(room).Load()}
		bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), until) // otherwise a caller who gives up would look like a store that does not answer
		defer cancel()
		t, err := r.begin(room, d, serves)
		if err != nil {
			return before, err
		}
		got, err := t.settle(bounded)
		if err == nil {
			r.counts.add(got.source)
			before.Assignment = r.assign(t.s, room, got.pin, got.source, got.reason)
		}
		return before, err
	})
	select {
	case got := <-answer:
		return got.Val.(settled), got.Err
	case <-ctx.Done():
		return settled{}, ctx.Err()
	}
}
