package reconnect

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// ErrGaveUp reports that a client could not be moved to its room's node; see
// GaveUpError.
var ErrGaveUp = errors.New("reconnect: gave up reconnecting")

// GaveUpError is the end of a failed migration. By errors.Is it is an ErrGaveUp, and
// matches what Last matches.
type GaveUpError struct {
	Room     string
	Attempts int   // to connect, at all targets
	Last     error // why the last attempt failed, or the resolve before it
}

// Error returns the number of attempts and the last error.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("%v to room %q after %d attempts; resolve the room again: %v", ErrGaveUp, e.Room, e.Attempts, e.Last)
}

// Is makes e an ErrGaveUp.
func (e *GaveUpError) Is(target error) bool { return target == ErrGaveUp }

// Unwrap returns Last.
func (e *GaveUpError) Unwrap() error { return e.Last }

// Directive makes the clients of a room connect to another node. A signalling server
// sends one for each room that moved.
type Directive struct {
	Room   string       `json:"room"`
	To     lease.NodeID `json:"to"`
	Addr   string       `json:"addr"`   // of the program on To, for clients
	Reason string       `json:"reason"` // for people
	Epoch  uint64       `json:"epoch"`  // a greater one is newer; below 2^53
}

// Pace is the number of a client's attempts and the waits between them. The zero value
// of each field is its default.
type Pace struct {
	// Attempts is the number of attempts at the target of a directive before the room is
	// resolved again. Default 3.
	Attempts int

	// MinWait and MaxWait bound the wait after a failed attempt. It counts from the
	// failure and is uniform, so that the clients of a node do not return in waves.
	// Default 3 s and 5 s; MaxWait is at least MinWait.
	MinWait, MaxWait time.Duration

	// Spread bounds the wait before the first attempt, uniform from 0, so that the
	// clients of a dead node do not all arrive at the same time. It adds half of itself
	// to the mean outage. Default 500 ms.
	Spread time.Duration
}

func (p Pace) withDefaults() Pace {
	p.Attempts = cmp.Or(max(p.Attempts, 0), 3)
	p.MinWait = cmp.Or(max(p.MinWait, 0), 3*time.Second)
	p.MaxWait = max(cmp.Or(p.MaxWait, 5*time.Second), p.MinWait)
	p.Spread = cmp.Or(max(p.Spread, 0), 500*time.Millisecond)
	return p
}

// Step is the next thing for a client to do.
type Step uint8

// The steps.
const (
	StepNone    Step = iota // nothing: there is no directive yet, or a step is in progress
	StepConnect             // connect to Target; report by Connected or Failed
	StepResolve             // resolve the room; report by Resolved or Failed
	StepDone                // the end; see Err
)

// Machine decides how a client follows a [Directive]. It is a state machine without
// clock, goroutine, lock or connection, for the client's own loop. [Driver] runs it on
// real time.
//
//	               3 attempts failed              resolved
//	connecting ───────────────────────▶ resolving ─────────▶ last attempt
//	    │                                   │ failed            │     │ failed
//	    │ connected                         ▼                   │     ▼
//	    ▼                                gave up                │  gave up
//	connected ◀─────────────────────────────────────────────────┘
//	                            connected
//
// The first attempt comes within Spread. There are 3 to 5 s between attempts and before
// the resolve; the last attempt follows the resolve at once. In every state a newer
// directive starts over with all its attempts, but not before MinWait has passed since
// the last attempt began. So no two attempts begin closer together, however fast
// directives arrive.
//
// Methods take the time, and a random number u, uniform in [0, 1). The zero value is
// ready to use.
type Machine struct {
	Pace Pace // set it before the first call

	state    machineState
	target   Directive
	epoch    uint64    // the newest one received
	tries    int       // attempts at the target of this directive
	attempts int       // at all targets, since the last end
	at       time.Time // when the next step is due
	began    time.Time // when the last attempt began
	busy     bool      // a step is in progress
	err      error
}

type machineState uint8

const (
	idle machineState = iota
	connecting
	resolving
	lastAttempt
	connected
	gaveUp
)

// Directed takes a directive and reports whether it is news: the first one, or one for
// the same room with a greater epoch than all before. The caller then abandons the step
// in progress and does not report its outcome.
func (r *Machine) Directed(now time.Time, u float64, d Directive) bool {
	if r.state != idle && (d.Room != r.target.Room || d.Epoch <= r.epoch) {
		return false
	}
	if r.over() {
		r.attempts = 0
	}
	pace := r.Pace.withDefaults()
	earliest := now
	if !r.began.IsZero() && r.began.Add(pace.MinWait).After(now) {
		earliest = r.began.Add(pace.MinWait)
	}
	r.state, r.target, r.epoch, r.tries, r.busy, r.err = connecting, d, d.Epoch, 0, false, nil
	r.at = earliest.Add(between(0, pace.Spread, u))
	return true
}

// Next returns the next step and the wait before it. If the wait is not positive, the
// step has begun: carry it out and report the outcome. Otherwise call Next again after
// the wait, or after Directed.
func (r *Machine) Next(now time.Time) (step Step, wait time.Duration) {
	switch {
	case r.over():
		return StepDone, 0
	case r.state == idle || r.busy:
		return StepNone, 0
	case r.state == resolving:
		step = StepResolve
	default:
		step = StepConnect
	}
	if wait = r.at.Sub(now); wait > 0 {
		return step, wait
	}
	r.busy = true
	if step == StepConnect {
		r.began = now
		r.tries++
		r.attempts++
	}
	return step, 0
}

// Connected reports that the attempt in progress succeeded.
func (r *Machine) Connected() {
	if r.busy && r.state != resolving {
		r.busy, r.state = false, connected
	}
}

// Resolved reports the answer of the resolve in progress. It is tried once, even with
// an older epoch: it is fresher than any directive.
func (r *Machine) Resolved(now time.Time, d Directive) {
	if !r.busy || r.state != resolving {
		return
	}
	d.Room = r.target.Room
	r.busy, r.state, r.target, r.at = false, lastAttempt, d, now
	r.epoch = max(r.epoch, d.Epoch)
}

// Failed reports that the step in progress failed.
func (r *Machine) Failed(now time.Time, u float64, err error) {
	if !r.busy {
		return
	}
	r.busy = false
	pace := r.Pace.withDefaults()
	if r.state != connecting {
		r.state = gaveUp
		r.err = &GaveUpError{Room: r.target.Room, Attempts: r.attempts, Last: err}
		return
	}
	r.at = now.Add(between(pace.MinWait, pace.MaxWait, u))
	if r.tries >= pace.Attempts {
		r.state = resolving
	}
}

// Target returns the target: the newest directive, or the answer of the resolve.
func (r *Machine) Target() Directive { return r.target }

// Attempts returns the number of attempts that have begun, at all targets, since the
// first directive or the first one after the last end.
func (r *Machine) Attempts() int { return r.attempts }

// Err returns a *GaveUpError if the last attempt has failed, otherwise nil.
func (r *Machine) Err() error { return r.err }

func (r *Machine) over() bool { return r.state == connected || r.state == gaveUp }

// between returns the point at fraction u of the way from lo to hi.
func between(lo, hi time.Duration, u float64) time.Duration {
	return lo + time.Duration(u*float64(hi-lo))
}
