package logqueue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// handler adds records to a queue.
type handler struct {
	queue *Queue
	next  slog.Handler
	level *level
}

// Queue implements Queued.
func (h *handler) Queue() *Queue { return h.queue }

// Enabled implements slog.Handler. It does not call the handler behind the queue.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool {
	if h.level.outdated() {
		h.queue.add(line{level: h.level})
	}
	return int64(l) >= h.level.least.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.queue.add(line{to: h.next, record: r.Clone()})
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.queue, h.next.WithAttrs(attrs), h.level}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.queue, h.next.WithGroup(name), h.level}
}

// level caches the lowest level that a handler writes. A handler may change its level at any time, and may
// block when it is asked.
type level struct {
	of     slog.Handler
	least  atomic.Int64
	asked  atomic.Bool  // the handler has been asked
	since  time.Time    // base of expiry, by the monotonic clock
	expiry atomic.Int64 // when the answer expires, in ns after since
}

// levelFor is how long a cached level is valid.
const levelFor = time.Second

func newLevel(of slog.Handler) *level {
	l := &level{of: of, since: time.Now()}
	l.ask()
	return l
}

// ask updates the cached level from the handler.
func (l *level) ask() {
	least := slog.LevelDebug - 4
	for least <= slog.LevelError && !l.of.Enabled(context.Background(), least) {
		least++
	}
	l.least.Store(int64(least))
	l.expiry.Store(int64(time.Since(l.since) + levelFor))
	l.asked.Store(false)
}

// outdated reports whether the handler must be asked again. It returns true only once per cached level.
func (l *level) outdated() bool {
	return int64(time.Since(l.since)) > l.expiry.Load() && l.asked.CompareAndSwap(false, true)
}
