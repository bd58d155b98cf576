package reconnect

import "time"

// Resolved takes the answer of the resolve in progress, and reports whether it is news. If so, the caller
// abandons an attempt in progress and does not report its outcome. The answer to a check is tried even if its
// epoch is older, because it is fresher than any directive.
func (r *Machine) Resolved(now time.Time, u float64, d Directive) bool {
	if !r.asking {
		return false
	}
	if d.To == "" {
		r.Unresolved(now, u, ErrNoNode)
		return false
	}
	d.Room = r.target.Room
	same := d.To == r.target.To
	switch {
	case r.state == checking:
		r.asking, r.state, r.target, r.epoch = false, trying, d, max(r.epoch, d.Epoch)
		r.allowed, r.earliest = true, now
		r.tries = r.Pace.withDefaults().Attempts
		return true
	case d.Epoch > r.epoch:
		r.deadline = time.Time{}
	case same || d.Epoch != 0 && !r.newer(d) || r.held(now):
		r.allowed = r.allowed || same && r.checkAt.IsZero()
		r.askAgain(now, u)
		return false
	}
	turns := r.turns + 1
	if d.Epoch > r.epoch {
		turns = 0
	}
	r.asking = false
	r.aim(later(now, r.spread), d)
	r.turn(now, u, turns)
	return true
}

// turn makes the nth turn in a row to another node without a greater epoch. From the second turn on, there is
// a pause before the first attempt at the target, which doubles like the pause after a refusal, because two
// resolvers without their store may name two different nodes forever. The client continues to ask for a
// greater epoch.
func (r *Machine) turn(now time.Time, u float64, n int) {
	if r.turns = n; n < 2 {
		return
	}
	r.hold = now.Add(r.Pace.withDefaults().refused(n-1, u))
	r.earliest = later(r.earliest, r.hold)
	r.doubt = true
	r.askAgain(now, u)
}

// held reports whether only a greater epoch may change the target. That is so after a second turn, until its
// pause, its attempt and the pause after a failure have ended.
func (r *Machine) held(now time.Time) bool {
	return r.turns > 1 && (r.connecting || now.Before(r.hold))
}

// newer reports whether d is newer than the target. A target without an epoch is a guess by a resolver
// without its store.
func (r *Machine) newer(d Directive) bool {
	return d.Epoch > r.epoch || r.target.Epoch == 0 && d.To != r.target.To && d.Epoch == r.epoch
}

// Unresolved reports that the resolve in progress failed.
func (r *Machine) Unresolved(now time.Time, u float64, err error) {
	if !r.asking {
		return
	}
	if r.asking = false; r.state == checking {
		r.giveUp(err)
		return
	}
	r.allowed = r.allowed || r.target.To != "" && r.checkAt.IsZero()
	r.askAgain(now, u)
}

// askAgain sets the time of the next ask, at the deadline at the latest.
func (r *Machine) askAgain(now time.Time, u float64) {
	pace := r.Pace.withDefaults()
	r.asking, r.askAt = false, now.Add(between(pace.MinAsk, pace.MaxAsk, u))
	if r.askAt.After(r.deadline) {
		r.askAt = r.deadline
	}
}
