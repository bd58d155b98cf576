package affinity

import (
	"context"
	"errors"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/placement"
)

// Resolve returns where a room lives. It pins a room without a pin to the owner of the room's partition if
// that node has headroom for the demand, or else to the least loaded node with headroom. All concurrent
// callers, on any node, get the same answer.
//
// Resolve takes no round trip to the store if the pin is cached, and otherwise one. Resolve takes a second
// round trip if a pin that was known here is gone, and up to three more if the pin names a node that has just
// died. If the store does not answer within Config.Budget, the assignment is Degraded, with the last known
// node or the owner of the room's partition.
//
// If the room is not cached, Resolve starts a goroutine for the round trip. If ctx can never be cancelled, as
// with context.WithoutCancel, it needs no goroutine. In both cases Resolve returns within the budget.
//
// Resolve fails with ErrName, ErrDemand, ErrRequire, ErrNoCapacity, ErrChanged (after several concurrent
// changes), ErrSettings, ErrClosed, ErrFenced, the errors of Agent.Place, or ctx.Err() if ctx ends before the
// budget is used up. With Config.StrictCeiling, Resolve also fails with ErrStore for a new room while the
// store does not answer.
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
	got, err := r.ask(ctx, began.Add(r.cfg.Budget), &r.shared.resolve, room, question{need: needOf(d)})
	return got.Assignment, err
}

// cached returns the room's assignment from the pin cache if the cached pin is fresh and names a live node.
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
