package serve

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/roost-cluster/roost/internal/logqueue"
)

// joining is a log handler that stores the error of the latest warning. A joining agent has no other way to
// report what it is waiting for.
type joining struct {
	logqueue.Queued
	latest *atomic.Pointer[string]
}

// newJoining wraps a handler that NewLogger created.
func newJoining(h slog.Handler, latest *atomic.Pointer[string]) slog.Handler {
	if q, ok := h.(logqueue.Queued); ok {
		return joining{q, latest}
	}
	return h
}

// Enabled implements slog.Handler. Enabled accepts warnings at every log level, so that Handle can store
// their errors.
func (j joining) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || j.Queued.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (j joining) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "err" {
				j.latest.Store(new(a.Value.String()))
			}
			return a.Key != "err"
		})
	}
	if !j.Queued.Enabled(ctx, r.Level) {
		return nil
	}
	return j.Queued.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (j joining) WithAttrs(attrs []slog.Attr) slog.Handler {
	return newJoining(j.Queued.WithAttrs(attrs), j.latest)
}

// WithGroup implements slog.Handler.
func (j joining) WithGroup(name string) slog.Handler {
	return newJoining(j.Queued.WithGroup(name), j.latest)
}
