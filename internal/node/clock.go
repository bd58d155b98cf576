package node

import "time"

// clockAhead reports whether the own clock is so far ahead that others reject the
// heartbeats of this node.
func (n *Node) clockAhead() bool {
	limit := n.cfg.MaxSkew
	if n.life.clockFenced {
		limit -= limit / 10 // so that a clock near the limit does not flap
	}
	return n.set.ClockAhead() > limit
}

// judgeClock fences this node while its clock is too far ahead.
func (n *Node) judgeClock(now time.Time) {
	if n.life.phase != Active || !n.clockAhead() {
		return
	}
	n.life.fenceClock(now)
	n.fence(now)
	n.announce(now)
	n.warnClock(now)
}

// warnClock logs once a minute why this node owns nothing.
func (n *Node) warnClock(now time.Time) {
	if n.clockLog.allow(now, time.Minute) {
		n.log(Error, "fenced: own clock is ahead of the cluster's; set the clock",
			"ahead", n.set.ClockAhead(), "max_skew", n.cfg.MaxSkew)
	}
}

// skew counts heartbeats of others that were rejected for their timestamps.
type skew struct {
	logged uint64 // by the last line
	limit  limiter
}

// warnSkew logs rejected heartbeats, at most once a minute.
func (n *Node) warnSkew(now time.Time) {
	rejected := n.set.Stats().SkewRejected
	if rejected != n.skew.logged && n.skew.limit.allow(now, time.Minute) {
		n.log(Warn, "rejected heartbeats from a clock too far ahead; set the clock of their sender",
			"heartbeats", rejected-n.skew.logged, "max_skew", n.cfg.MaxSkew)
		n.skew.logged = rejected
	}
}
