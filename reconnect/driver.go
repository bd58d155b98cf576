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

// Driver moves a client to its room's node by running a [Machine] on real time. Set the
// fields before the first call. Use one Driver for each room of a client.
type Driver struct {
	// Connect connects the client to d.Addr and replaces its connection to the room. It
	// returns soon after its context ends. If it succeeds although a newer directive
	// ended the context, it is called again with the newer one. Required.
	Connect func(ctx context.Context, d Directive) error

	// Resolve resolves the room without caches. Required.
	Resolve func(ctx context.Context, room string) (Directive, error)

	// Pace is the number of attempts and the waits between them.
	Pace Pace

	// AttemptTimeout bounds each call of Connect and Resolve. Default 10 s.
	AttemptTimeout time.Duration

	// Log receives the log. Default slog.Default().
	Log *slog.Logger

	mu      sync.Mutex
	machine Machine
	running bool
	abandon context.CancelFunc // ends the step in progress; nil if there is none
	changed chan struct{}      // holds one token after a newer directive
}

var (
	errDriver  = errors.New("reconnect: a Driver needs both Connect and Resolve")
	errRunning = errors.New("reconnect: the Driver is running; pass newer directives to Directed, and use one Driver for each room")
)

// Run follows d, and newer directives from [Driver.Directed], until the client is
// connected; then it returns nil. It returns nil at once if an earlier Run connected the
// client by a newer directive than d. It returns a *GaveUpError when the last attempt
// has failed, ctx.Err() when ctx is done, and another error after incorrect use. With
// the default Pace and no newer directive, it gives up after 9 to 15.5 s plus the time
// of the attempts.
//
// Run calls Connect and Resolve one at a time, and starts no goroutine. Their panics
// reach its caller, and the Driver can be used again.
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

// Directed takes a directive that has arrived, and reports whether it is handled: a
// running Run for the room follows it if it is newer than all before, or an earlier Run
// has connected the client by this directive or a newer one. Otherwise call Run with it.
// Directed does not wait.
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

// begin reports whether there is a step to take.
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

// connectedSince reports whether the last Run connected the client by d or by a newer
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

// driverStep is a step with its arguments, copied under the lock.
type driverStep struct {
	step     Step
	wait     time.Duration
	target   Directive
	attempts int
	err      error
}

// next returns the machine's next step, and the context of the step if it has begun.
// The end is decided under the lock, so that Run follows every directive that Directed
// has taken.
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

// perform carries out a step. After a newer directive the machine ignores the outcome.
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
