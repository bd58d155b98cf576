package storeclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

const (
	// abreast is how many calls of single ops may run before other ops wait. So if there are few callers,
	// they only wait for the store.
	abreast = 4

	// tick is the longest time that an op waits for others to share its call. A store that answers sooner gets the
	// next call when it has answered. A distant store gets a call each tick, so the number of running calls follows
	// its round trip.
	tick = 4 * time.Millisecond

	// most is how many shared calls may run at a time. It bounds what a store that hangs can hold up until the breaker opens.
	most = 256

	// sharing is the maximum number of ops in a call that callers share.
	sharing = 64

	// apartTime is how long ops share no calls after a call without an answer in time.
	apartTime = 10 * time.Second
)

// errBusy does not mean that the store is slow with an op, because it never got the op.
var errBusy = errors.New("earlier calls are not answered yet")

// queue calls a store for callers that each have an op. While several calls are running, further ops wait, for a
// tick at most, and share the next call. So under load an op costs only a fraction of a call.
type queue struct {
	call   func(context.Context, ...pinstore.Op) []pinstore.Result // of the store
	budget time.Duration                                           // of a call, from when it is sent

	mu      sync.Mutex
	running int
	idle    sync.Pool // of *waiter; not guarded by mu
	waiting []*waiter // empty unless abreast calls are running
	ticking bool      // a tick has begun, for those who wait

	// Until then ops share no calls, because a call had no answer in time. A shard that hangs would otherwise
	// delay the ops for other shards, too.
	apart time.Time
}

type waiter struct {
	op     pinstore.Op
	answer chan pinstore.Result // holds one
	late   *time.Timer
}

// Until returns a ctx that limits Client.Swap to a time, like context.WithDeadline but without the cost of a timer for each
// call. Its Done does not tell that the time has come.
func Until(ctx context.Context, at time.Time) context.Context { return until{ctx, at} }

type until struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (u until) Deadline() (time.Time, bool) { return u.at, true }

// swap performs an op and waits at most until ctx ends, or for a ctx of Until, until its deadline. An op with a limit shares
// no call.
func (q *queue) swap(ctx context.Context, op pinstore.Op) pinstore.Result {
	at, bounded := ctx.Deadline()
	if ctx.Err() != nil || (bounded && !time.Now().Before(at)) { // nothing is sent
		return pinstore.Result{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, errBusy)}
	}
	if op.Limit > 0 {
		return q.alone(ctx, op)[0]
	}
	q.mu.Lock()
	apart := time.Now().Before(q.apart)
	if apart || q.running < abreast {
		if !apart {
			q.running++
			defer q.next()
		}
		q.mu.Unlock()
		whole := q.whole(ctx)
		results := q.alone(ctx, op)
		q.heed(whole, results)
		return results[0]
	}
	w := q.waiter(op)
	q.waiting = append(q.waiting, w)
	q.waitATick()
	q.mu.Unlock()
	return q.wait(ctx, w)
}

// wait returns the answer for a waiter.
func (q *queue) wait(ctx context.Context, w *waiter) pinstore.Result {
	var late <-chan time.Time
	if at, bounded := ctx.Deadline(); bounded {
		w.late.Reset(time.Until(at))
		late = w.late.C
	}
	select {
	case res := <-w.answer:
		q.done(w)
		return res
	case <-late:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return pinstore.Result{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, errBusy)}
	}
	select {
	case res := <-w.answer: // it came at the same time
		return res
	default:
		return pinstore.Result{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, cmp.Or(ctx.Err(), context.DeadlineExceeded))}
	}
}

// alone performs an op in a call of its own.
func (q *queue) alone(ctx context.Context, op pinstore.Op) []pinstore.Result {
	if at, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at)
		defer cancel()
	}
	return q.call(ctx, op)
}

// waiter returns a waiter for an op.
func (q *queue) waiter(op pinstore.Op) *waiter {
	w, ok := q.idle.Get().(*waiter)
	if !ok {
		w = &waiter{answer: make(chan pinstore.Result, 1), late: time.NewTimer(time.Hour)}
		w.late.Stop()
	}
	w.op = op
	return w
}

// done keeps a waiter that has got its answer for another op.
func (q *queue) done(w *waiter) {
	w.late.Stop()
	w.op = pinstore.Op{}
	q.idle.Put(w)
}

// next ends a call, and begins the next one for ops that have waited if few calls are running. Otherwise the next tick does.
func (q *queue) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if len(q.waiting) > 0 && q.running < abreast {
		q.begin()
	}
}

// waitATick starts a tick if ops wait and no tick is running. The caller has the lock.
func (q *queue) waitATick() {
	if q.ticking || len(q.waiting) == 0 {
		return
	}
	q.ticking = true
	time.AfterFunc(tick, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.ticking = false; len(q.waiting) > 0 && q.running < most {
			q.begin()
		}
		q.waitATick()
	})
}

// begin begins a call for ops that have waited. The caller has the lock.
func (q *queue) begin() {
	q.running++
	some := q.take()
	go func() {
		defer q.next()
		q.share(some)
	}()
}

// whole reports whether a call gets the budget, and not only the rest of it that earlier calls of a join have left. Without an
// answer, only such a call says something about the store.
func (q *queue) whole(ctx context.Context) bool {
	until, bounded := ctx.Deadline()
	return !bounded || time.Until(until) >= q.budget*3/4
}

// heed notices a call without an answer in time.
func (q *queue) heed(whole bool, results []pinstore.Result) {
	if !whole || !slices.ContainsFunc(results, func(r pinstore.Result) bool { return errors.Is(r.Err, context.DeadlineExceeded) }) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apart = time.Now().Add(apartTime)
}

// shared is the waiters that share an op.
type shared []*waiter

// take removes the waiters of the next call. The ops of a call must have distinct rooms, so reads of the same
// room share an op, and other ops of that room continue to wait. While ops share no calls, each has its own.
// The caller must hold the lock.
func (q *queue) take() (some []shared) {
	most := min(sharing, len(q.waiting))
	at, apart := make(map[string]int, most), time.Now().Before(q.apart)
	some = make([]shared, 0, most)
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool {
		i, taken := at[w.op.Room]
		switch {
		case apart:
			go q.share([]shared{{w}})
		case taken && w.op == some[i][0].op && w.op == (pinstore.Op{Partition: w.op.Partition, Room: w.op.Room}):
			some[i] = append(some[i], w)
		case taken || len(some) == sharing:
			return false
		default:
			at[w.op.Room] = len(some)
			some = append(some, shared{w})
		}
		return true
	})
	return some
}

// share makes a call for some waiters. If one of them gives up, the call continues for the others.
func (q *queue) share(some []shared) {
	ctx, cancel := context.WithTimeout(context.Background(), q.budget)
	defer cancel()
	if len(some) == 0 {
		return
	}
	ops := make([]pinstore.Op, len(some))
	for i, s := range some {
		ops[i] = s[0].op
	}
	results := q.call(ctx, ops...)
	q.heed(true, results)
	for i, res := range results {
		for _, w := range some[i] {
			w.answer <- res
		}
	}
}
