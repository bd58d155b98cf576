package reconnect

import "time"

// Resolved passes the answer of the resolve in progress to the machine and reports whether it is news. If the
// answer is news, the caller must abandon an attempt in progress and must not report its outcome. After a
// check, the machine connects to the node in the answer even if the answer has a smaller epoch than an earlier
// directive, because the answer is fresher than any directive.
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

// turn records the nth turn in a row. A turn is a change of the target to another node without a greater epoch. From
// the second turn on, the machine pauses before the first attempt at the target, because two resolvers that cannot
// reach the store may name two different nodes forever. The pause doubles with each turn, like the pause after a
// refusal. Meanwhile, the client continues to ask for a greater epoch.
func (r *Machine) turn(now time.Time, u float64, n int) {
	if r.turns = n; n < 2 {
		return
	}
	r.hold = now.Add(r.Pace.withDefaults().refused(n-1, u))
	r.earliest = later(r.earliest, r.hold)
	r.doubt = true
	r.askAgain(now, u)
}

// held reports whether only a greater epoch can change the target. The target is held from the second turn
// until the pause, the attempt and the pause after a failure have ended.
func (r *Machine) held(now time.Time) bool {
	return r.turns > 1 && (r.connecting || now.Before(r.hold))
}

// newer reports whether d is newer than the target. A target without an epoch is a guess by a resolver that
// cannot reach the store.
func (r *Machine) newer(d Directive) bool {
	return d.Epoch > r.epoch || r.target.Epoch == 0 && d.To != r.target.To && d.Epoch == r.epoch
}

// Unresolved tells the machine that the resolve in progress failed.
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

// askAgain schedules the next ask, no later than the deadline.
func (r *Machine) askAgain(now time.Time, u float64) {
	pace := r.Pace.withDefaults()
	r.asking, r.askAt = false, now.Add(between(pace.MinAsk, pace.MaxAsk, u))
	if r.askAt.After(r.deadline) {
		r.askAt = r.deadline
	}
}
