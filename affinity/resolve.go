package affinity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/roost-cluster/roost/affinity/internal/capacity"
	"github.com/roost-cluster/roost/affinity/internal/liveness"
	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

// Resolve returns where a room lives. A room without a pin is pinned now: to the
// owner of its partition if that has headroom for the demand, otherwise to the least
// loaded node with headroom. All concurrent callers, on any node, get the same
// answer.
//
// It takes no round trip to the store if the pin is cached, one otherwise, a second one if a
// pin that was known here has gone, and up to three more if the pin names a node that has just died. If the store does not answer
// within Config.Budget, the assignment is Degraded: the last known node, or the node
// of the hash.
//
// It fails with ErrName, ErrDemand, ErrRequire, ErrNoCapacity, ErrChanged (after several
// concurrent changes), ErrSettings, ErrClosed, the errors of Agent.Place, or ctx.Err() if ctx ends
// before the budget does.
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
		if a, ok := r.cached(room); ok { // so its name is valid
			return a, nil
		}
	}
	if err := errors.Join(CheckName(room), faulty); err != nil {
		return Assignment{}, err
	}
	began := time.Now()
	defer func() { r.counts.asked.Add(time.Since(began)) }()
	got, err := r.ask(ctx, &r.shared.resolve, room, d, false, func() (settled, bool) {
		a, ok := r.cached(room) // another caller may have been answered in between
		return settled{Assignment: a}, ok
	})
	return got.Assignment, err
}

// cached answers from the pin cache.
func (r *Resolver) cached(room string) (Assignment, bool) {
	e := r.cache.Get(room)
	if e == nil || !r.cache.IsFresh(e) || r.work.closed.Load() { // no longer notified then
		return Assignment{}, false
	}
	s := r.agent.Snapshot()
	node := liveness.Live(s, e.Pin.Incarnation)
	if node == nil {
		return Assignment{}, false
	}
	r.counts.add(Cached)
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: e.Pin.Incarnation, Epoch: e.Pin.Epoch,
		Source: Cached, Reason: "already pinned, from the cache", Member: node,
	}, true
}

// settled is an answer of the store, and what was so before the store was asked. The
// answer proves nothing about a later loss or fence. A caller may get it later.
type settled struct {
	Assignment
	generation uint64 // of the pin cache
	fences     uint64 // of the agent
}

// ask settles a room with the store, unless there is a shortcut by then. Concurrent
// callers for the same room share a flight, and with it the answer. hosts: they are about to
// serve the room here.
func (r *Resolver) ask(ctx context.Context, shared *flights, room string, d Demand, hosts bool, shortcut func() (settled, bool)) (settled, error) {
	f, leads := shared.board(room)
	if leads {
		r.lead(ctx, f, d, hosts, shortcut)
	}
	select {
	case <-f.landed:
		return f.got, f.err
	case <-ctx.Done():
		return settled{}, ctx.Err()
	}
}

var errPanicked = errors.New("affinity: the caller who asked for all panicked")

// lead gets the answer for the callers of a flight. It reads a known pin at once. Anything else runs on a
// goroutine, also when the caller gives up: others may wait, a claim may have to be undone, and a
// store that does not answer has to be noticed.
func (r *Resolver) lead(ctx context.Context, f *flight, d Demand, hosts bool, shortcut func() (settled, bool)) {
	if got, ok := shortcut(); ok {
		f.land(got, nil)
		return
	}
	defer func() {
		if p := recover(); p != nil { // of the store or the tracer; a server of HTTP may survive it
			f.land(settled{}, fmt.Errorf("%w: %v", errPanicked, p))
			panic(p)
		}
	}()
	began, s := time.Now(), r.agent.Snapshot()
	before := settled{generation: r.cache.Generation(), fences: s.Stats.Fences}
	known, e := r.cache.Known(f.room), r.cache.Get(f.room)
	var cause error
	if !hosts && e != nil && !r.cache.Lost(e) && liveness.Live(s, known.Incarnation) != nil {
		bounded, cancel := r.store.Bounded(ctx, began)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		a, err := r.reread(bounded, f.room, known)
		switch {
		case err == nil && a.Member != nil:
			r.counts.add(Pinned)
			before.Assignment = a
			f.land(before, nil)
			return
		case !errors.Is(bounded.Err(), context.Canceled):
			cause = err
		}
	}
	go func() {
		bounded, cancel := r.store.Bounded(ctx, began)
		defer cancel()
		a, err := r.settle(bounded, f.room, d, hosts, known, cause)
		r.counts.add(a.Source)
		before.Assignment = a
		f.land(before, err)
	}()
}

// reread reads a pin that is known here. It returns no assignment if the pin has gone, or does not stand.
func (r *Resolver) reread(ctx context.Context, room string, known pinstore.Pin) (Assignment, error) {
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, nil //nolint:nilerr // settle fails with it
	}
	res := r.swap(ctx, s, pinstore.Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room}, "")
	if res.Err != nil || res.Pin.Epoch < known.Epoch || liveness.Live(s, res.Pin.Incarnation) == nil {
		return Assignment{}, res.Err
	}
	return r.assign(s, room, res.Pin, Pinned, liveness.Alive.Reason()), nil
}

// flights are the rooms that callers wait for. A singleflight.Group takes a goroutine for each, or its callers cannot
// give up.
type flights struct {
	mu   sync.Mutex
	open map[string]*flight
}

// flight is an answer about a room, and the callers who wait for it.
type flight struct {
	shared *flights
	room   string
	landed chan struct{} // closed when the answer is there
	got    settled
	err    error
}

// board returns the flight for a room, and whether the caller leads it.
func (f *flights) board(room string) (_ *flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if that, ok := f.open[room]; ok {
		return that, false
	}
	if f.open == nil {
		f.open = make(map[string]*flight)
	}
	this := &flight{shared: f, room: room, landed: make(chan struct{})}
	f.open[room] = this
	return this, true
}

func (f *flight) land(got settled, err error) {
	f.got, f.err = got, err
	f.shared.mu.Lock()
	delete(f.shared.open, f.room)
	f.shared.mu.Unlock()
	close(f.landed)
}

// ready returns a snapshot that can place the room.
func (r *Resolver) ready(room string) (*cluster.Snapshot, error) {
	s := r.agent.Snapshot()
	if r.work.closed.Load() {
		return s, ErrClosed
	}
	if err := r.store.agreement.Refused(); err != nil {
		return s, err
	}
	_, err := r.agent.Place(room)
	return s, err
}

// request is a request with what the store is asked for.
type request struct {
	capacity.Request
	known uint64 // the room's epoch as known here
	hosts bool   // this node is about to serve the room

	generation uint64 // of the pin cache, before the room was looked at
}

func (r *Resolver) request(s *cluster.Snapshot, room string, n capacity.Need) request {
	return request{Request: capacity.Request{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Need: n, Cost: r.cost(n),
		Ladder: capacity.NewLadder(s, room, n, r.selector(room, n)), Strangers: r.store.agreement.Strangers(),
	}}
}
