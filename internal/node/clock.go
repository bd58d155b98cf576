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

// warnSkew logs, at most once a minute, that heartbeats of others were rejected for
// their timestamps.
func (n *Node) warnSkew(now time.Time) {
	count := n.set.Stats().SkewRejected
	if count != n.rejected && n.skewLog.allow(now, time.Minute) {
		n.log(Warn, "rejected heartbeats from a clock too far ahead; set the clock of their sender",
			"heartbeats", count-n.rejected, "max_skew", n.cfg.MaxSkew)
		n.rejected = count
	}
}
