package reconnect

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// ErrGaveUp says that a client could not be brought to where its room lives now;
// see GaveUpError.
var ErrGaveUp = errors.New("reconnect: gave up reconnecting")

// GaveUpError is the end of a migration that failed. By errors.Is it is an
// ErrGaveUp, and whatever Last is.
type GaveUpError struct {
	Room     string
	Attempts int   // to connect, at all targets
	Last     error // why the last attempt failed, or the resolve before it
}

// Error says how often it was tried and what went wrong last.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("%v to room %q after %d attempts; ask for the room anew: %v", ErrGaveUp, e.Room, e.Attempts, e.Last)
}

// Is makes e an ErrGaveUp.
func (e *GaveUpError) Is(target error) bool { return target == ErrGaveUp }

// Unwrap returns Last.
func (e *GaveUpError) Unwrap() error { return e.Last }

// Directive tells the clients of a room to connect elsewhere: a signalling server
// sends one for each room that moved. An ICE restart cannot replace it, since
// another process has another DTLS identity: clients open a new connection.
type Directive struct {
	Room   string       `json:"room"`
	To     lease.NodeID `json:"to"`
	Addr   string       `json:"addr"`   // where clients reach the program on To
	Reason string       `json:"reason"` // for people
	Epoch  uint64       `json:"epoch"`  // the greater one is newer; below 2^53
}

// Pace is how often and how far apart a client tries. Zero fields are replaced by
// their defaults.
type Pace struct {
	// Attempts is how often the target of a directive is tried before asking anew
	// where the room lives. Default 3.
	Attempts int

	// MinWait and MaxWait bound the wait after a failed attempt, counted from the
	// failure and uniform in between, so that the clients of a node do not come
	// back in waves. Default 3 s and 5 s; MaxWait is at least MinWait.
	MinWait, MaxWait time.Duration

	// Spread bounds the wait before the first attempt, uniform from 0, so that the
	// clients of a dead node do not all arrive at the next one at once. It adds
	// half of itself to the mean outage. Default 500 ms.
	Spread time.Duration
}

func (p Pace) withDefaults() Pace {
	p.Attempts = cmp.Or(max(p.Attempts, 0), 3)
	p.MinWait = cmp.Or(max(p.MinWait, 0), 3*time.Second)
	p.MaxWait = max(cmp.Or(p.MaxWait, 5*time.Second), p.MinWait)
	p.Spread = cmp.Or(max(p.Spread, 0), 500*time.Millisecond)
	return p
}

// Step is what a client has to do next.
type Step uint8

// The steps.
const (
	StepNone    Step = iota // nothing: no directive came yet, or a step is under way
	StepConnect             // connect to Target; report by Connected or Failed
	StepResolve             // ask where the room lives; report by Resolved or Failed
	StepDone                // it is over; see Err
)

// Machine is how a client follows a [Directive], as a state machine without
// clock, goroutine, lock or connection, to be driven by whatever loop the client
// has. [Driver] drives it in Go.
//
//	               3 attempts failed              resolved
//	connecting ───────────────────────▶ resolving ─────────▶ last attempt
//	    │                                   │ failed            │     │ failed
//	    │ connected                         ▼                   │     ▼
//	    ▼                                gave up                │  gave up
//	connected ◀─────────────────────────────────────────────────┘
//	                            connected
//
// The first attempt comes within Spread. There are 3 to 5 s between attempts and
// before the resolve; the last attempt follows the resolve at once. A newer
// directive, in whatever state, starts over with all its attempts, but not before
// MinWait has passed since the last attempt began: so no two ever begin closer
// together than that, however fast directives come.
//
// Methods take the time, and a random number u, uniform in [0, 1). The zero value
// is ready to use.
type Machine struct {
	Pace Pace // to be set before the first call

	state    machineState
	target   Directive
	epoch    uint64    // the newest that was heard of
	tries    int       // at the target of this directive
	attempts int       // in all, since it was last over
	at       time.Time // when the next step is due
	began    time.Time // when the last attempt did
	busy     bool      // a step is under way
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

// Directed takes a directive and reports whether it is news: the first one, or
// one for the same room with a greater epoch than all that was heard of. Then the
// step that is under way, if any, has to be abandoned: what it comes to is no
// longer to be reported.
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

// Next returns the next step and how long to wait before it. If that is not
// positive, the step has begun: carry it out and report what came of it. Else
// call Next again after the wait, or after Directed.
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

// Connected reports that the attempt that is under way succeeded.
func (r *Machine) Connected() {
	if r.busy && r.state != resolving {
		r.busy, r.state = false, connected
	}
}

// Resolved reports what the resolve that is under way said. That is tried once,
// whichever epoch it has: it is fresher than any directive.
func (r *Machine) Resolved(now time.Time, d Directive) {
	if !r.busy || r.state != resolving {
		return
	}
	d.Room = r.target.Room
	r.busy, r.state, r.target, r.at = false, lastAttempt, d, now
	r.epoch = max(r.epoch, d.Epoch)
}

// Failed reports that the step that is under way, of either kind, failed.
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

// Target returns where to connect: the newest directive, or what the resolve said.
func (r *Machine) Target() Directive { return r.target }

// Attempts returns how many attempts to connect have begun, at all targets, since
// the first directive or the first one after the machine had come to its end.
func (r *Machine) Attempts() int { return r.attempts }

// Err returns a *GaveUpError if the last attempt has failed, else nil.
func (r *Machine) Err() error { return r.err }

func (r *Machine) over() bool { return r.state == connected || r.state == gaveUp }

// between returns the point at u of the way from lo to hi.
func between(lo, hi time.Duration, u float64) time.Duration {
	return lo + time.Duration(u*float64(hi-lo))
}
