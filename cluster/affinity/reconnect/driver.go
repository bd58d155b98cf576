package reconnect

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Driver moves a client to the node of its room. It runs a [Machine] in real time. Set the fields before the
// first call. A client needs one Driver for each room.
type Driver struct {
	// Connect connects the client to d.Addr and replaces its connection to the room. Connect must return soon
	// after its context ends. If news of another node has ended the context, the Driver calls Connect again
	// for that node, even if this call succeeds. Return ErrRefused or ECONNREFUSED if the target did not
	// accept the client. Required.
	Connect func(ctx context.Context, d Directive) error

	// Resolve resolves the room without caches. The Driver can call Resolve while Connect is running.
	// Required.
	Resolve func(ctx context.Context, room string) (Directive, error)

	// Pace configures the number of attempts and the waits between attempts.
	Pace Pace

	// AttemptTimeout limits each call of Connect. Each call of Resolve is limited to AttemptTimeout or 2 s,
	// whichever is shorter. Default 10 s.
	AttemptTimeout time.Duration

	// Log receives log records. Default slog.Default().
	Log *slog.Logger

	mu      sync.Mutex
	machine Machine
	since   time.Time     // when the client began to look for the node
	steps   []*step       // in progress, including abandoned ones
	callers int           // waiting callers of Follow and Lost
	leader  chan struct{} // closed when the caller that runs the steps returns; nil: no caller runs them
	changed chan struct{} // holds a token after news
}

// Follow connects the client to the node of d, or to the node of any newer directive or answer. Call Follow
// with each directive that arrives, at any time and from any goroutine. A call with an old directive changes
// nothing, and concurrent calls wait for the same result.
//
// Follow returns nil when the client is connected, even if an earlier call made the connection. Follow
// returns a *GaveUpError when the last attempt has failed. When ctx is done, Follow returns ctx.Err(), while
// other calls continue. Other errors are ErrNoNode, ErrRoom and ErrDriver.
//
// Only one Connect and one Resolve run at a time. If Connect or Resolve panics, one of the waiting callers
// panics, and the Driver remains usable. No goroutine outlives the calls.
func (r *Driver) Follow(ctx context.Context, d Directive) error {
	if d.To == "" {
		return ErrNoNode
	}
	return r.join(ctx, d, (*Machine).Directed)
}

// Lost moves the client to the node of its room after the client has lost the connection that Connect made to
// d. If the client already has another connection, Lost does nothing. Otherwise, Lost returns the same
// results as [Driver.Follow]. If the client has no connection yet, call Lost with a Directive in which only
// Room is set.
//
// Lost does not end an attempt in progress, because that attempt may be for the same d. Therefore, if the
// connection is lost before Connect returns, Connect must fail. A connection can also be lost after Connect
// returns but before the Driver has recorded the connection. Therefore, if the client has no open connection
// when Lost returns nil, call Lost again.
func (r *Driver) Lost(ctx context.Context, d Directive) error {
	return r.join(ctx, d, (*Machine).Lost)
}

func (r *Driver) join(ctx context.Context, d Directive, report func(*Machine, time.Time, float64, Directive) bool) error {
	if r.Connect == nil || r.Resolve == nil {
		return ErrDriver
	}
	if err := r.report(d, report); err != nil {
		return err
	}
	defer r.leave()
	for {
		over, leader, err := r.lead()
		if !over && leader == nil {
			if over, err = r.run(ctx); !over {
				return ctx.Err()
			}
		}
		if over {
			return err
		}
		select {
		case <-leader:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report passes d to the machine and counts the caller.
func (r *Driver) report(d Directive, report func(*Machine, time.Time, float64, Directive) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.machine
	if m.state != idle && d.Room != m.target.Room {
		return ErrRoom
	}
	m.Pace = r.Pace
	if r.changed == nil {
		r.changed = make(chan struct{}, 1)
	}
	resting := m.state == idle || m.over()
	now := time.Now()
	if report(m, now, rand.Float64(), d) {
		if resting {
			r.since = now
		}
		r.abandon()
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
	r.callers++
	return nil
}

// lead reports whether the machine has finished, and with which error. If the machine has not finished, lead returns
// the channel of the caller that runs the steps. If no caller runs the steps, lead returns nil, and the caller of lead
// must run them.
func (r *Driver) lead() (over bool, leader chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machine.over() {
		return true, nil, r.machine.Err()
	}
	if leader = r.leader; leader == nil {
		r.leader = make(chan struct{})
	}
	return false, leader, nil
}

// resign allows another caller to run the steps.
func (r *Driver) resign() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil {
		close(r.leader)
		r.leader = nil
	}
}

// leave unregisters a caller. If the last caller leaves and the client is not connected, the machine stops,
// so that the next call starts over.
func (r *Driver) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.callers--; r.callers == 0 && !r.machine.over() {
		r.machine.stop(context.Canceled)
	}
}

// abandon cancels the steps in progress for which the machine no longer waits.
func (r *Driver) abandon() {
	for _, s := range r.steps {
		if s.kind == StepConnect && !r.machine.connecting || s.kind == StepResolve && !r.machine.asking {
			s.abandoned = true
			s.cancel()
		}
	}
}

func (r *Driver) log() *slog.Logger {
	if r.Log != nil {
		return r.Log
	}
	return slog.Default()
}
