// Package logqueue puts a bounded queue between code that must not wait and a slog.Handler that may block,
// for example because it writes to an unread pipe, a slow disk or a network.
//
// Each queue has a goroutine that calls the handler. If the handler is too slow, the oldest waiting lines are
// dropped, because the newest ones say what state the program is in and why it ends. Lines that the handler
// rejects with an error are lost, too. Lost lines are counted, and a line says how many there are as soon as
// the handler accepts one. A record reaches the handler without the context of its caller.
package logqueue

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLines is how many lines may wait. A node that joins a large cluster logs a line for each member at
	// the same moment.
	maxLines = 4096

	// flushTime is how long to wait at the end.
	flushTime = time.Second

	// noticeEvery is how often a line may say that lines are missing. Without it, a handler that rejects
	// every second line would write little else.
	noticeEvery = time.Minute
)

// Queue passes lines to their handlers, in order.
type Queue struct {
	mu     sync.Mutex
	lines  []line // oldest first
	closed bool

	wake    chan struct{} // holds a token after a change
	done    chan struct{} // closed when the goroutine has ended
	dropped atomic.Uint64

	// Only the goroutine uses these fields.
	noted   uint64    // lines that were said to be missing
	notedAt time.Time // when
}

// line is a record for a handler, or, if level is set, a question to it.
type line struct {
	to     slog.Handler
	record slog.Record
	level  *level
}

// Queued is a handler that adds records to a queue. A handler that wraps one should implement it, too.
type Queued interface {
	slog.Handler
	Queue() *Queue
}

// Through returns log behind a queue, which is its present queue or else a new one. end closes a new queue,
// and does nothing to an existing one. It waits for at most a second until the lines so far are written.
// Later lines are dropped.
func Through(log *slog.Logger) (behind *slog.Logger, q *Queue, end func()) {
	if h, ok := log.Handler().(Queued); ok {
		return log, h.Queue(), func() {}
	}
	q = &Queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return slog.New(&handler{q, log.Handler(), newLevel(log.Handler())}), q, q.close
}

// Dropped returns how many lines were not written.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// close stops the queue. If the handler takes too long, the goroutine ends when the handler returns.
func (q *Queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
	late := time.NewTimer(flushTime)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.drop(len(q.lines))
	}
}

// add adds a line. It never waits for a handler.
func (q *Queue) add(l line) {
	q.mu.Lock()
	if q.closed {
		q.lost(l)
	} else if q.lines = append(q.lines, l); len(q.lines) > maxLines {
		q.drop(1)
	}
	q.mu.Unlock()
	q.signal()
}

// drop removes the oldest lines.
func (q *Queue) drop(n int) {
	for _, l := range q.lines[:n] {
		q.lost(l)
	}
	clear(q.lines[:n])
	q.lines = q.lines[n:]
}

func (q *Queue) lost(l line) {
	if l.level == nil {
		q.dropped.Add(1)
	} else {
		l.level.asked.Store(false) // ask again
	}
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // a token is there already
	}
}

func (q *Queue) run() {
	defer close(q.done)
	var last slog.Handler
	for {
		l, ok := q.next()
		switch {
		case !ok:
			q.notice(last)
			return
		case l.level != nil:
			l.level.ask()
			continue
		}
		if last = l.to; time.Since(q.notedAt) >= noticeEvery {
			q.notice(last)
		}
		if l.to.Handle(context.Background(), l.record) != nil {
			q.dropped.Add(1)
		}
	}
}

// next waits for a line, and returns false after the last one.
func (q *Queue) next() (l line, ok bool) {
	for {
		q.mu.Lock()
		if len(q.lines) > 0 {
			l, q.lines[0] = q.lines[0], line{}
			q.lines = q.lines[1:]
			q.mu.Unlock()
			return l, true
		}
		q.lines = nil // frees the memory of a long queue
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return line{}, false
		}
		<-q.wake
	}
}

// notice says how many lines are missing, if any.
func (q *Queue) notice(to slog.Handler) {
	missing := q.dropped.Load() - q.noted
	if missing == 0 || to == nil {
		return
	}
	ctx := context.Background()
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines dropped", 0)
	r.Add("lines", missing)
	if !to.Enabled(ctx, r.Level) || to.Handle(ctx, r) == nil {
		q.noted += missing
		q.notedAt = time.Now()
	}
}
