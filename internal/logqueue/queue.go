// Package logqueue puts a bounded queue between code that must not block and a slog.Handler that may block. A
// handler may block because it writes to an unread pipe, a slow disk or a network.
//
// Each queue has a goroutine that calls the handler. If the handler is too slow, the queue drops the oldest
// waiting lines, because the newest lines show the state of the process and why it ends. Lines for which the
// handler returns an error are also lost. The queue counts lost lines. As soon as the handler accepts a line
// again, the queue writes a line with the number of lost lines. The handler receives records without the
// context of the caller.
package logqueue

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLines is the maximum number of waiting lines. The limit is high because a node that joins a large
	// cluster logs a line for each member at the same time.
	maxLines = 4096

	// flushTime is how long the end of a queue waits for the handler.
	flushTime = time.Second

	// noticeEvery is the minimum time between two lines about lost lines. Without this limit, a handler that
	// rejects every second line would write little else.
	noticeEvery = time.Minute
)

// Queue passes lines to their handlers in order.
type Queue struct {
	mu     sync.Mutex
	lines  []line // oldest first
	closed bool

	wake    chan struct{} // holds a token after a change
	done    chan struct{} // closed when the goroutine has ended
	dropped atomic.Uint64

	// The following fields are only used by the goroutine of the queue.
	noted   uint64    // lost lines that have been reported
	notedAt time.Time // when they were reported
}

// line is a record for a handler. If level is set, the line is a request to update that level instead.
type line struct {
	to     slog.Handler
	record slog.Record
	level  *level
}

// Queued is a handler that adds records to a queue. A handler that wraps a Queued should also implement
// Queued.
type Queued interface {
	slog.Handler
	Queue() *Queue
}

// Through returns a logger that writes through a queue. If log already has a queue, Through returns log and
// that queue, and end does nothing. Otherwise Through creates a queue, and end closes that queue. The
// function end waits for at most a second while the remaining lines are written. Later lines are dropped.
func Through(log *slog.Logger) (behind *slog.Logger, q *Queue, end func()) {
	if h, ok := log.Handler().(Queued); ok {
		return log, h.Queue(), func() {}
	}
	q = &Queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return slog.New(&handler{q, log.Handler(), newLevel(log.Handler())}), q, q.close
}

// Dropped returns the number of lines that were not written.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// close stops the queue. If the handler blocks for too long, close returns first, and the goroutine ends when
// the handler returns.
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

// add adds a line. It never blocks on a handler.
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

// next waits for a line and returns it. It returns false after the last line.
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

// notice writes a line with the number of lost lines, if there are any.
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
