package reconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Driver brings a client to where its room lives now: it drives a
// [Machine] on real time. Set the fields before the first call, and use one
// Driver for each room that a client is in.
type Driver struct {
	// Connect connects the client to d.Addr, in place of whatever connection it
	// has to the room. It returns soon after its context ends. If it succeeds in
	// spite of that, and a newer directive was the reason, it is called again with
	// that one. Required.
	Connect func(ctx context.Context, d Directive) error

	// Resolve asks, bypassing caches, where the room lives. Required.
	Resolve func(ctx context.Context, room string) (Directive, error)

	// Pace is how often and how far apart to try.
	Pace Pace

	// AttemptTimeout bounds each call of Connect and Resolve. Default 10 s.
	AttemptTimeout time.Duration

	// Log receives the log. Default slog.Default().
	Log *slog.Logger

	mu      sync.Mutex
	machine Machine
	running bool
	abandon context.CancelFunc // ends the step that is under way; nil if none is
	changed chan struct{}      // holds one token: a newer directive came
}

var (
	errDriver  = errors.New("reconnect: a Driver needs both Connect and Resolve")
	errRunning = errors.New("reconnect: the Driver is running already; give newer directives to Directed, and use one Driver for each room")
)

// Run follows d, and whatever newer directive [Driver.Directed] is given
// meanwhile, until the client is connected: then it returns nil; at once, if an
// earlier Run connected the client by a newer directive than d. It returns a
// *GaveUpError when the last attempt has failed, ctx.Err() when ctx is done, and
// another error if it was not used as it should be. With the default Pace and no
// newer directive, it gives up after 9 to 15.5 s plus what the attempts took.
//
// Run calls Connect and Resolve itself, one at a time, and starts no goroutine; a
// panic of theirs goes through to its caller, and the Driver can be used
// again.
func (r *Driver) Run(ctx context.Context, d Directive) error {
	began := time.Now()
	if news, err := r.begin(d); !news {
		return err
	}
	ended := false
	defer func() {
		if !ended {
			r.end()
		}
	}()
	for ctx.Err() == nil {
		next, stepCtx := r.next(ctx)
		switch {
		case next.step == StepDone:
			ended = true // in next; another Run may have begun
			if next.err == nil {
				r.log().LogAttrs(ctx, slog.LevelInfo, "client migrated", slog.String("room", next.target.Room),
					slog.String("to", string(next.target.To)), slog.Int("attempts", next.attempts),
					slog.Int64("duration_ms", time.Since(began).Milliseconds()))
			}
			return next.err
		case next.wait > 0:
			r.sleep(ctx, next.wait)
		default:
			r.perform(stepCtx, next)
		}
	}
	return ctx.Err()
}

// Directed tells of a directive that has arrived, and reports whether it is in
// good hands. It is if Run is under way for its room, which turns to it at once
// if it is newer than all before, or if Run has connected the client by this
// directive or a newer one. Else call Run with it. Directed does not wait.
func (r *Driver) Directed(d Directive) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		return r.connectedSince(d)
	}
	if d.Room != r.machine.target.Room {
		return false
	}
	if r.machine.Directed(time.Now(), rand.Float64(), d) {
		if r.abandon != nil {
			r.abandon()
		}
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
	return true
}

// begin reports whether there is anything to do.
func (r *Driver) begin(d Directive) (news bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Connect == nil || r.Resolve == nil:
		return false, errDriver
	case r.running:
		return false, errRunning
	case r.connectedSince(d) && d.Epoch < r.machine.epoch:
		return false, nil // d was overtaken on its way here
	}
	r.running = true
	r.changed = make(chan struct{}, 1)
	r.machine = Machine{Pace: r.Pace}
	return r.machine.Directed(time.Now(), rand.Float64(), d), nil
}

// connectedSince reports whether the last Run connected the client by d or a newer
// directive.
func (r *Driver) connectedSince(d Directive) bool {
	m := &r.machine
	return m.state == connected && d.Room == m.target.Room && d.Epoch <= m.epoch
}

func (r *Driver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	if r.abandon != nil { // Connect or Resolve panicked
		r.abandon()
		r.abandon = nil
	}
}

// driverStep is a step with all that it takes, copied from under the lock.
type driverStep struct {
	step     Step
	wait     time.Duration
	target   Directive
	attempts int
	err      error
}

// next asks the machine, and makes the context of the step if that has begun. The
// end is decided under the lock: no directive comes in between that Directed has
// taken and Run does not follow.
func (r *Driver) next(ctx context.Context) (n driverStep, stepCtx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.machine
	n.step, n.wait = m.Next(time.Now())
	n.target, n.attempts, n.err = m.Target(), m.Attempts(), m.Err()
	switch {
	case n.step == StepDone:
		r.running = false
	case n.wait <= 0:
		timeout := r.AttemptTimeout
		if timeout <= 0 {
			timeout = 10 * time.Second
		}
		stepCtx, r.abandon = context.WithTimeout(ctx, timeout)
	}
	return n, stepCtx
}

// perform carries out a step. If a newer directive came meanwhile, the machine
// does not listen to what it came to.
func (r *Driver) perform(ctx context.Context, n driverStep) {
	var found Directive
	var err error
	if n.step == StepResolve {
		if found, err = r.Resolve(ctx, n.target.Room); err != nil {
			err = fmt.Errorf("resolve: %w", err)
		}
	} else {
		err = r.Connect(ctx, n.target)
	}
	if err != nil {
		r.log().LogAttrs(ctx, slog.LevelDebug, "reconnect failed", slog.String("room", n.target.Room),
			slog.String("to", string(n.target.To)), slog.Int("attempts", n.attempts), slog.Any("err", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandon()
	r.abandon = nil
	switch {
	case err != nil:
		r.machine.Failed(time.Now(), rand.Float64(), err)
	case n.step == StepResolve:
		r.machine.Resolved(time.Now(), found)
	default:
		r.machine.Connected()
	}
}

// sleep returns after the wait, or earlier if there is a newer directive.
func (r *Driver) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.changed:
	case <-ctx.Done():
	}
}

func (r *Driver) log() *slog.Logger {
	if r.Log != nil {
		return r.Log
	}
	return slog.Default()
}
