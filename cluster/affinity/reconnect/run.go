package reconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// step is a step in progress. The Driver's lock guards abandoned.
type step struct {
	kind      Step
	target    Directive
	attempts  int
	cancel    context.CancelFunc
	abandoned bool // the machine does not wait for the outcome

	found    Directive // answer of a resolve
	err      error
	panicked any
}

var errExited = errors.New("reconnect: the function called runtime.Goexit")

// run performs the steps of the machine until the machine finishes or ctx is done. run checks for the end
// while it holds the lock, so that a later directive sees the end.
func (r *Driver) run(ctx context.Context) (ended bool, err error) {
	done := make(chan *step, 2)
	defer r.resign()
	returns := false // remains false if run panics; the panic of run then takes precedence over the panic of a step
	defer func() {
		if panicked := r.drain(done); panicked != nil && returns {
			panic(panicked)
		}
	}()
	for ctx.Err() == nil {
		next := r.next(ctx, done)
		if next.kind == StepDone {
			if next.err == nil {
				r.log().LogAttrs(ctx, slog.LevelInfo, "client migrated", slog.String("room", next.target.Room),
					slog.String("to", string(next.target.To)), slog.Int("attempts", next.attempts),
					slog.Int64("duration_ms", next.took.Milliseconds()))
			}
			returns = true
			return true, next.err
		}
		r.wait(ctx, next.wait, done)
	}
	returns = true
	return false, nil
}

// wait waits for the given duration if it is positive. wait returns earlier after an outcome or news.
func (r *Driver) wait(ctx context.Context, wait time.Duration, done <-chan *step) {
	var timeout <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case s := <-done:
		r.finish(ctx, s)
	case <-r.changed:
	case <-timeout:
	case <-ctx.Done():
	}
}

// due describes what run must wait for.
type due struct {
	kind     Step
	wait     time.Duration
	target   Directive
	attempts int
	took     time.Duration
	err      error
}

// next starts the steps that are due. next returns the wait before the next step, or reports that the machine
// has finished. It does not start a step until all abandoned steps have returned.
func (r *Driver) next(ctx context.Context, done chan<- *step) (d due) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.machine
	for !slices.ContainsFunc(r.steps, func(s *step) bool { return s.abandoned }) {
		now := time.Now()
		d = due{target: m.target, attempts: m.attempts, took: now.Sub(r.since), err: m.err}
		if d.kind, d.wait = m.Next(now); d.kind == StepDone || d.kind == StepNone || d.wait > 0 {
			return d
		}
		r.start(ctx, &step{kind: d.kind, target: m.target, attempts: m.attempts}, done)
	}
	return due{}
}

// start performs a step in a goroutine.
func (r *Driver) start(ctx context.Context, s *step, done chan<- *step) {
	const longestResolve = 2 * time.Second
	timeout := r.AttemptTimeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	if s.kind == StepResolve {
		timeout = min(timeout, longestResolve)
	}
	ctx, s.cancel = context.WithTimeout(ctx, timeout)
	r.steps = append(r.steps, s)
	s.err = errExited
	go func() {
		defer func() {
			s.panicked = recover()
			done <- s
		}()
		if s.kind == StepConnect {
			s.err = r.Connect(ctx, s.target)
		} else if s.found, s.err = r.Resolve(ctx, s.target.Room); s.err != nil {
			s.err = fmt.Errorf("resolve: %w", s.err)
		}
	}()
}

// finish reports the outcome of a step to the machine, unless the step was abandoned.
func (r *Driver) finish(ctx context.Context, s *step) {
	s.cancel()
	if s.panicked == nil && s.err != nil {
		r.log().LogAttrs(ctx, slog.LevelDebug, "reconnect failed", slog.String("room", s.target.Room),
			slog.String("to", string(s.target.To)), slog.Int("attempts", s.attempts), slog.Any("err", s.err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = slices.DeleteFunc(r.steps, func(other *step) bool { return other == s })
	if s.panicked != nil {
		panic(s.panicked)
	}
	if s.abandoned {
		return
	}
	m, now, u := &r.machine, time.Now(), rand.Float64()
	switch {
	case s.kind == StepResolve && s.err != nil:
		m.Unresolved(now, u, s.err)
	case s.kind == StepResolve:
		m.Resolved(now, u, s.found)
	case s.err == nil:
		m.Connected()
	case errors.Is(s.err, ErrRefused) || errors.Is(s.err, syscall.ECONNREFUSED):
		m.Refused(now, u, s.err)
	default:
		m.Failed(now, u, s.err)
	}
	r.abandon()
}

// drain cancels the steps in progress and waits for them, because run is about to return or panic. The
// machine later repeats the steps that it still needs. drain returns the first panic of a step.
func (r *Driver) drain(done <-chan *step) (panicked any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		s.cancel()
	}
	for range r.steps {
		r.mu.Unlock()
		s := <-done
		r.mu.Lock()
		s.abandoned = true
		if panicked == nil {
			panicked = s.panicked
		}
	}
	r.steps = nil
	r.machine.interrupt()
	return panicked
}
