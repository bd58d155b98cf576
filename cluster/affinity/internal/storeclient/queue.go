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
	// abreast is how many calls can run at the same time before further ops must wait. With few callers, no
	// op waits for other ops.
	abreast = 4

	// tick is the maximum time that an op waits for other ops to share its call. If the store answers sooner,
	// the next call starts right after the answer. A distant store gets one call per tick, so the number of
	// running calls is proportional to its round trip time.
	tick = 4 * time.Millisecond

	// most is the maximum number of running calls. most limits how many calls can pile up if the store hangs,
	// until the breaker opens.
	most = 256

	// sharing is the maximum number of ops in a call that callers share.
	sharing = 64

	// apartTime is how long each op gets its own call after a call has timed out.
	apartTime = 10 * time.Second
)

// errBusy reports that an op was never sent to the store. errBusy does not indicate that the store is slow.
var errBusy = errors.New("earlier calls have no answer yet")

// queue merges the ops of concurrent callers into shared store calls. While several calls are running,
// further ops wait for at most a tick and then share the next call. So under load, an op costs only a
// fraction of a call.
type queue struct {
	call   func(context.Context, ...pinstore.Op) []pinstore.Result // of the store
	budget time.Duration                                           // timeout of a call, from when it is sent

	mu      sync.Mutex
	running int
	idle    sync.Pool // of *waiter; not guarded by mu
	waiting []*waiter // empty unless abreast calls are running
	ticking bool      // a tick is running for the waiting ops

	// apart is the time until which ops share no calls, because a call has timed out. Otherwise a hanging
	// shard would also delay the ops for other shards.
	apart time.Time
}

type waiter struct {
	op     pinstore.Op
	answer chan pinstore.Result // holds one
	late   *time.Timer
}

// Until returns a context with a deadline for Client.Swap. Unlike context.WithDeadline, Until does not cost a timer per
// call, and the Done channel of its context is not closed at the deadline.
func Until(ctx context.Context, at time.Time) context.Context { return until{ctx, at} }

type until struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (u until) Deadline() (time.Time, bool) { return u.at, true }

// swap performs an op and returns its result. It waits for the result only until ctx ends or until ctx's deadline,
// because the context of Until does not end at its deadline. An op with a Limit always gets its own call.
func (q *queue) swap(ctx context.Context, op pinstore.Op) pinstore.Result {
	at, bounded := ctx.Deadline()
	if ctx.Err() != nil || (bounded && !time.Now().Before(at)) { // fail without sending the op
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

// wait waits for the answer for w. If the caller's time is up before the op is sent, the op is never sent.
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
	case res := <-w.answer: // the answer arrived at the same time
		return res
	default:
		return pinstore.Result{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, cmp.Or(ctx.Err(), context.DeadlineExceeded))}
	}
}

// alone performs an op in its own call.
func (q *queue) alone(ctx context.Context, op pinstore.Op) []pinstore.Result {
	if at, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at)
		defer cancel()
	}
	return q.call(ctx, op)
}

// waiter returns a new or reused waiter for an op.
func (q *queue) waiter(op pinstore.Op) *waiter {
	w, ok := q.idle.Get().(*waiter)
	if !ok {
		w = &waiter{answer: make(chan pinstore.Result, 1), late: time.NewTimer(time.Hour)}
		w.late.Stop()
	}
	w.op = op
	return w
}

// done returns a waiter to the pool after it has received its answer.
func (q *queue) done(w *waiter) {
	w.late.Stop()
	w.op = pinstore.Op{}
	q.idle.Put(w)
}

// next ends a call. If ops are waiting and few calls are running, next starts another call. Otherwise the next tick
// starts the call.
func (q *queue) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if len(q.waiting) > 0 && q.running < abreast {
		q.begin()
	}
}

// waitATick starts a tick if ops are waiting and no tick is running. The caller must hold the lock.
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

// begin starts a call for waiting ops. The caller must hold the lock.
func (q *queue) begin() {
	q.running++
	some := q.take()
	go func() {
		defer q.next()
		q.share(some)
	}()
}

// whole reports whether a call has at least three quarters of the budget left. Otherwise earlier calls of the
// same join have used up the time, so a timeout proves nothing about the store.
func (q *queue) whole(ctx context.Context) bool {
	until, bounded := ctx.Deadline()
	return !bounded || time.Until(until) >= q.budget*3/4
}

// heed stops the sharing of calls for apartTime if one of the results is a timeout.
func (q *queue) heed(whole bool, results []pinstore.Result) {
	if !whole || !slices.ContainsFunc(results, func(r pinstore.Result) bool { return errors.Is(r.Err, context.DeadlineExceeded) }) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apart = time.Now().Add(apartTime)
}

// shared lists the waiters that share an op.
type shared []*waiter

// take removes and returns the waiters of the next call. The ops of a call must have distinct rooms, so reads
// of the same room share an op, and other ops for that room continue to wait. While ops share no calls, take
// starts a separate call for each waiter. The caller must hold the lock.
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

// share makes one call for several waiters. If a waiter gives up, the call continues for the other waiters.
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
