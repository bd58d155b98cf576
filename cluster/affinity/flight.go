package affinity

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
)

// flights merges concurrent queries for the same room, so that all callers share one answer of the store.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

// flight is a query that concurrent callers share.
type flight struct {
	done chan struct{} // closed at the end; nil while nobody waits. Guarded by flights.mu
	over bool          // the flight has an answer; false if a callback panicked; written before done is closed
	got  settled
	err  error
}

// settled is an answer of the store, with counters from before the store was queried, because the answer
// proves nothing about a later data loss or fence. A caller can use the counters to detect that the answer is
// out of date.
type settled struct {
	Assignment
	generation uint64 // of the pin cache
	fences     uint64 // of the agent
	ends       uint64 // of hostings here: see hostTable.endsOf
}

// question is what callers want to know about a room.
type question struct {
	need   capacity.Need
	serves bool // the callers are about to serve the room on this node
	firm   bool // see capacity.Request.Firm
}

// ask finds or claims a room's pin in the store, or returns an answer that another caller has just learned.
// ask gives up at the time until. Concurrent callers for the same room share the answer of the first caller.
//
// If the first caller's ctx can never be cancelled, the caller queries the store on its own goroutine, which
// is cheaper. Otherwise a new goroutine queries the store, because other callers still need the answer after
// the first caller has given up.
func (r *Resolver) ask(ctx context.Context, until time.Time, shared *flights, room string, q question) (settled, error) {
	patient := ctx.Done() == nil
	for {
		f, first := shared.join(room, patient)
		switch {
		case first && patient:
			r.fly(ctx, until, shared, f, room, q)
			return f.got, f.err
		case first:
			go r.fly(context.WithoutCancel(ctx), until, shared, f, room, q)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return settled{}, ctx.Err()
		}
		if f.over {
			return f.got, f.err
		}
	}
}

// join returns the flight for a room. first reports whether join has created the flight. The caller can wait
// for done, unless patient and first are both true.
func (s *flights) join(room string, patient bool) (f *flight, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.all[room]; f == nil {
		if s.all == nil {
			s.all = make(map[string]*flight)
		}
		f, first = new(flight), true
		s.all[room] = f
	}
	if leads := first && patient; f.done == nil && !leads {
		f.done = make(chan struct{})
	}
	return f, first
}

// land ends a flight. If a callback has panicked, the waiting callers query the store themselves.
func (s *flights) land(room string, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, room)
	if f.done != nil {
		close(f.done)
	}
}

// fly gets the answer of a flight. A caller who gives up must not cancel ctx, because that would look as if
// the store did not answer.
func (r *Resolver) fly(ctx context.Context, until time.Time, shared *flights, f *flight, room string, q question) {
	defer shared.land(room, f)
	f.got, f.err = r.settle(storeclient.Until(ctx, until), room, q)
	f.over = true
}

func (r *Resolver) settle(ctx context.Context, room string, q question) (settled, error) {
	if got, ok := r.learned(room, q.serves); ok {
		return got, nil
	}
	got := settled{generation: r.cache.Generation(), fences: r.agent.Snapshot().Stats.Fences, ends: r.hosts.endsOf(room).Load()}
	t := settling{Resolver: r}
	if err := t.begin(room, q); err != nil {
		return got, err
	}
	found, err := t.settle(ctx)
	switch {
	case err == nil:
		r.counts.add(found.source)
		got.Assignment = r.assign(t.s, room, found.pin, found.source, found.reason)
	case errors.Is(err, ErrNoCapacity):
		r.counts.noCapacity.Add(1)
	}
	return got, err
}

// learned returns an answer that another caller has just learned, if there is one.
func (r *Resolver) learned(room string, serves bool) (got settled, ok bool) {
	if serves {
		return r.justLearned(room)
	}
	got.Assignment, ok = r.cached(room)
	return got, ok
}

// justLearned returns an answer without a query if Resolve has learned in the last 200 ms that the room is
// pinned to this node. This saves a round trip if a request calls Resolve and then Host. If the pin has
// changed since then, the keeper detects it at once: see Resolver.open.
func (r *Resolver) justLearned(room string) (got settled, ok bool) {
	const moment = 200 * time.Millisecond
	ends := r.hosts.endsOf(room).Load() // read before the entry, because the entry becomes void when a hosting ends
	e, s := r.cache.Get(room), r.agent.Snapshot()
	if e == nil || drained(s.Self) || r.cache.MayBeOlder(e.Pin.Epoch) || e.Fences != s.Stats.Fences ||
		time.Since(e.Learned) > moment || !r.cache.IsFresh(e) || e.Pin.Incarnation != r.self() {
		return got, false
	}
	return settled{r.assign(s, room, e.Pin, Pinned, liveness.Alive.Reason()), e.Generation, e.Fences, ends}, true
}
