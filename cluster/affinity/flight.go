package affinity

import (
	"context"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
)

// flights lets concurrent callers for a room share an answer of the store.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

// flight is a question that callers share.
type flight struct {
	done chan struct{} // closed at the end; nil while nobody waits. Guarded by flights.mu
	over bool          // there is an answer, and not a panic of a callback; written before done is closed
	got  settled
	err  error
}

// settled is an answer of the store, and counts from before the store was asked, because the answer proves
// nothing about a later loss or fence. A caller may get it later.
type settled struct {
	Assignment
	generation uint64 // of the pin cache
	fences     uint64 // of the agent
	ends       uint64 // of hostings here: see hostTable.endsOf
}

// ask settles a room with the store until the given time, unless another caller has just learned the answer.
// Concurrent callers for the same room share the answer of the first one. serves is set if they are about to
// serve the room here.
//
// A caller whose ctx cannot end asks on its own goroutine, which is cheaper. For another caller, a new
// goroutine asks, because the others still need the answer after this caller has given up.
func (r *Resolver) ask(ctx context.Context, until time.Time, shared *flights, room string, d Demand, serves bool) (settled, error) {
	patient := ctx.Done() == nil
	for {
		f, first := shared.join(room, patient)
		switch {
		case first && patient:
			r.fly(ctx, until, shared, f, room, d, serves)
			return f.got, f.err
		case first:
			go r.fly(context.WithoutCancel(ctx), until, shared, f, room, d, serves)
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

// join returns the flight for a room, and whether it begins now. The caller can wait for done, unless it is
// patient and the flight begins now.
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

// land ends a flight. If a callback has panicked, those who wait ask themselves.
func (s *flights) land(room string, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, room)
	if f.done != nil {
		close(f.done)
	}
}

// fly gets the answer of a flight. ctx must not end because a caller gives up, which would look like a store
// that does not answer.
func (r *Resolver) fly(ctx context.Context, until time.Time, shared *flights, f *flight, room string, d Demand, serves bool) {
	defer shared.land(room, f)
	f.got, f.err = r.settle(storeclient.Until(ctx, until), room, d, serves)
	f.over = true
}

func (r *Resolver) settle(ctx context.Context, room string, d Demand, serves bool) (settled, error) {
	if got, ok := r.learned(room, serves); ok {
		return got, nil
	}
	got := settled{generation: r.cache.Generation(), fences: r.agent.Snapshot().Stats.Fences, ends: r.hosts.endsOf(room).Load()}
	t := settling{Resolver: r}
	if err := t.begin(room, d, serves); err != nil {
		return got, err
	}
	found, err := t.settle(ctx)
	if err == nil {
		r.counts.add(found.source)
		got.Assignment = r.assign(t.s, room, found.pin, found.source, found.reason)
	}
	return got, err
}

// learned returns the answer that another caller has got a moment ago.
func (r *Resolver) learned(room string, serves bool) (got settled, ok bool) {
	if serves {
		return r.justLearned(room)
	}
	got.Assignment, ok = r.cached(room)
	return got, ok
}

// justLearned answers from a pin of this node that Resolve has learned a moment ago, for example if one
// request calls both. If the pin has changed since then, the hosting detects it at once: see open.
func (r *Resolver) justLearned(room string) (got settled, ok bool) {
	const moment = 200 * time.Millisecond
	ends := r.hosts.endsOf(room).Load() // read before the entry, which is void after the end of a hosting
	e, s := r.cache.Get(room), r.agent.Snapshot()
	if e == nil || drained(s.Self) || r.cache.MayBeOlder(e.Pin.Epoch) || e.Fences != s.Stats.Fences ||
		time.Since(e.Learned) > moment || !r.cache.IsFresh(e) || e.Pin.Incarnation != r.self() {
		return got, false
	}
	return settled{r.assign(s, room, e.Pin, Pinned, liveness.Alive.Reason()), e.Generation, e.Fences, ends}, true
}
