package reconnect

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Step is an action that the client must perform next.
type Step uint8

// These are the steps that Machine.Next returns.
const (
	StepNone    Step = iota // nothing: there is no directive yet, or steps are in progress
	StepConnect             // connect to Target; then call Connected, Refused or Failed
	StepResolve             // resolve the room; then call Resolved or Unresolved
	StepDone                // the machine has finished; see Err
)

// Machine decides how a client finds the node of its room. A Machine is a state machine without a clock,
// goroutine, lock or connection, for clients with their own event loop. The package comment describes the
// states of a Machine. [Driver] runs a Machine in real time.
//
// An attempt and a resolve may be in progress at the same time. Methods take the current time and a uniform
// random number u in [0, 1). The zero value is ready to use.
type Machine struct {
	Pace Pace // set it before the first call

	state  machineState
	target Directive
	epoch  uint64 // the greatest epoch received
	err    error

	connecting bool         // an attempt is in progress
	allowed    bool         // the target may be tried after earliest
	earliest   time.Time    // time of the next attempt
	spread     time.Time    // earliest time of the first attempt at any node
	began      time.Time    // when the last attempt began
	tries      int          // attempts at the target that it did not refuse
	tried      lease.NodeID // the node of the last attempt
	refused    bool         // the last attempt was refused
	refusals   int          // in a row
	attempts   int          // at all targets, since the machine started or last finished

	turns int       // turns in a row to another node without a greater epoch
	hold  time.Time // until then only a greater epoch changes the target; set from the second turn on

	asking   bool      // a resolve is in progress
	asked    time.Time // when the last resolve began
	doubt    bool      // the room may have another node: ask until deadline
	askAt    time.Time // time of the next resolve
	checkAt  time.Time // when to check, after the last failure; zero otherwise
	deadline time.Time // zero: the target has not refused and is not lost
}

type machineState uint8

const (
	idle machineState = iota
	seeking
	checking
	trying
	connected
	gaveUp
)

// Directed passes a directive to the machine and reports whether the directive is news. A directive is news
// if it is the first, or if it is for the same room and has a greater epoch than all earlier directives.
// After the machine gave up, the newest directive is also news when it arrives again. If the directive is
// news, the caller must abandon the steps in progress and must not report their outcome.
func (r *Machine) Directed(now time.Time, u float64, d Directive) bool {
	again := r.state == idle || r.state == gaveUp && d.Epoch == r.epoch
	if d.To == "" || r.state != idle && d.Room != r.target.Room || !again && !r.newer(d) {
		return false
	}
	r.restart()
	r.asking, r.deadline = false, time.Time{}
	r.spread = now.Add(between(0, r.Pace.withDefaults().Spread, u))
	r.aim(r.spread, d)
	return true
}

// Lost tells the machine that the client has lost the connection that it made to d. Lost reports whether that
// was the client's current connection. If the client has no connection yet, call Lost with a Directive in
// which only Room is set, so that the machine finds the node of the room.
func (r *Machine) Lost(now time.Time, u float64, d Directive) bool {
	switch {
	case r.state == idle:
		r.target, r.epoch = d, d.Epoch
	case d.Room != r.target.Room:
		return false
	case r.state == gaveUp:
	case r.state != connected || d.To != r.target.To || d.Epoch != r.target.Epoch:
		return false
	}
	pace := r.Pace.withDefaults()
	short := r.state == connected && now.Sub(r.began) < pace.MaxWait
	if short && r.tries > pace.Attempts {
		r.giveUp(ErrLost)
		return true
	}
	if !short {
		r.restart()
		r.tries, r.turns = 0, 0
	}
	r.state, r.refusals, r.allowed, r.checkAt = seeking, 0, false, time.Time{}
	r.doubt, r.asking, r.askAt, r.deadline = true, false, now, now.Add(pace.AskFor)
	r.spread = now.Add(between(0, pace.Spread, u))
	r.earliest = r.paused(r.spread, r.target.To)
	if short {
		r.earliest = now.Add(pace.retry(u))
		r.exhaust(pace)
	}
	return true
}

// Next returns the next step and how long to wait before it. If the wait is not positive, the step has begun,
// so perform it and report the outcome. Otherwise, call Next again after the wait or after any other call.
func (r *Machine) Next(now time.Time) (step Step, wait time.Duration) {
	if r.state == idle {
		return StepNone, 0
	}
	if r.over() {
		return StepDone, 0
	}
	if r.state == seeking {
		r.endDoubt(now)
	}
	step, at := r.due()
	if wait = at.Sub(now); step == StepNone || wait > 0 {
		return step, max(0, wait)
	}
	if step == StepConnect {
		r.connecting, r.tried, r.refused, r.began = true, r.target.To, false, now
		r.tries++
		r.attempts++
	} else {
		r.asking, r.asked = true, now
	}
	return step, 0
}

// endDoubt stops the asks at their deadline and starts the check when the check is due.
func (r *Machine) endDoubt(now time.Time) {
	if r.doubt && !now.Before(r.deadline) {
		r.doubt = false
		if !r.connecting && !r.allowed && r.checkAt.IsZero() {
			r.checkAt = now
		}
	}
	if !r.checkAt.IsZero() && !now.Before(r.checkAt) {
		r.state, r.doubt, r.allowed, r.askAt = checking, false, false, now
	}
}

// due returns the earliest step that is not in progress, and when it is due. Two resolves start at least
// MinAsk apart.
func (r *Machine) due() (step Step, at time.Time) {
	consider := func(s Step, t time.Time) {
		if step == StepNone || t.Before(at) {
			step, at = s, t
		}
	}
	if (r.doubt || r.state == checking) && !r.asking {
		consider(StepResolve, later(r.askAt, r.asked.Add(r.Pace.withDefaults().MinAsk)))
	}
	if r.allowed && !r.connecting {
		consider(StepConnect, r.earliest)
	}
	if r.state == seeking && !r.checkAt.IsZero() {
		consider(StepResolve, r.checkAt)
	}
	return step, at
}

// Connected tells the machine that the attempt in progress succeeded. The caller must abandon a resolve in
// progress.
func (r *Machine) Connected() {
	if r.connecting {
		r.state, r.connecting, r.asking = connected, false, false
	}
}

// Refused tells the machine that the target of the attempt in progress did not accept the client.
func (r *Machine) Refused(now time.Time, u float64, err error) {
	if !r.connecting {
		return
	}
	if r.connecting = false; r.state == trying {
		r.giveUp(err)
		return
	}
	pace := r.Pace.withDefaults()
	r.tries--
	r.refusals++
	r.refused = true
	r.allowed, r.earliest = false, now.Add(pace.refused(r.refusals, u))
	if r.deadline.IsZero() {
		r.deadline = now.Add(pace.AskFor)
	}
	switch {
	case !now.Before(r.deadline):
		r.checkAt = now
	case !r.doubt:
		r.doubt, r.askAt = true, now
	}
}

// Failed tells the machine that the attempt in progress failed after the target had accepted the client.
func (r *Machine) Failed(now time.Time, u float64, err error) {
	if !r.connecting {
		return
	}
	if r.connecting = false; r.state == trying {
		r.giveUp(err)
		return
	}
	pace := r.Pace.withDefaults()
	r.refusals, r.earliest = 0, now.Add(pace.retry(u))
	r.hold = r.earliest
	r.exhaust(pace)
}

// exhaust ends the attempts at the target if the last attempt has failed.
func (r *Machine) exhaust(pace Pace) {
	if r.tries >= pace.Attempts {
		r.allowed, r.checkAt = false, r.earliest
	}
}

// aim makes d the target and resets the count of attempts at the target.
func (r *Machine) aim(at time.Time, d Directive) {
	at = r.paused(at, d.To)
	r.state, r.target, r.epoch = seeking, d, max(r.epoch, d.Epoch)
	r.connecting, r.allowed, r.earliest = false, true, at
	r.doubt, r.tries, r.refusals, r.turns, r.checkAt = false, 0, 0, 0, time.Time{}
}

// paused returns the earliest time, but not before at, for an attempt at a node. Two attempts at a node that
// did not refuse the client are always at least MinWait apart, no matter how fast directives arrive.
func (r *Machine) paused(at time.Time, node lease.NodeID) time.Time {
	if node == r.tried && !r.refused {
		return later(at, r.began.Add(r.Pace.withDefaults().MinWait))
	}
	return at
}

// restart resets the count of attempts if the machine has finished.
func (r *Machine) restart() {
	if r.over() {
		r.attempts, r.err = 0, nil
	}
}

func (r *Machine) giveUp(err error) {
	r.state = gaveUp
	r.err = &GaveUpError{Room: r.target.Room, Attempts: r.attempts, Last: err}
}

func (r *Machine) over() bool { return r.state == connected || r.state == gaveUp }

// Target returns the current target, which comes from the newest directive or the newest answer.
func (r *Machine) Target() Directive { return r.target }

// Attempts returns the number of attempts at all targets since the machine started or last finished.
func (r *Machine) Attempts() int { return r.attempts }

// Err returns a *GaveUpError if the machine gave up. Otherwise, it returns nil.
func (r *Machine) Err() error { return r.err }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// interrupt abandons the steps in progress, so that they become due again.
func (r *Machine) interrupt() {
	if r.connecting {
		r.tries--
	}
	r.connecting, r.asking = false, false
}

// stop stops the search for the node of the room.
func (r *Machine) stop(err error) {
	r.interrupt()
	r.giveUp(err)
}
