package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Hold is a reason why a node owns nothing. A node can have several holds at the same time.
type Hold struct {
	Cause  Cause
	Until  time.Time // when the hold ends by itself; zero = when its cause ends
	Reason string    // what has happened, as text for people

	logged time.Time // when the hold was last logged; zero = not since it began
}

// Cause is the kind of a hold.
type Cause string

// The causes are listed in the order in which they should be resolved. An earlier cause may be the reason for
// a later one.
const (
	CauseDuplicate  Cause = "duplicate"   // a later process may run under its id
	CauseClockAhead Cause = "clock_ahead" // other nodes reject its heartbeats, because its clock is ahead
	CauseIsolated   Cause = "isolated"    // it sees too few members, or is in the minority of a split
	CauseUnhealthy  Cause = "unhealthy"   // its application is unhealthy
	CauseFlapping   Cause = "flapping"    // it disappears and returns too often
	CauseCordoned   Cause = "cordoned"    // it is cordoned; only in a View
	CauseDraining   Cause = "draining"    // it was told to drain
)

// holds contains the holds of a node.
type holds map[Cause]Hold

func (h holds) has(c Cause) bool { _, ok := h[c]; return ok }

// list returns the holds in the order in which their causes should be resolved.
func (h holds) list() (all []Hold) {
	for _, c := range []Cause{CauseDuplicate, CauseClockAhead, CauseIsolated, CauseUnhealthy, CauseFlapping, CauseCordoned, CauseDraining} {
		if hold, ok := h[c]; ok {
			all = append(all, hold)
		}
	}
	return all
}

// hold starts a hold, or replaces its end and reason, and reports whether the hold is new. The caller must
// announce the new state. A hold is logged when it starts or gets a different end, and otherwise at most once
// a minute. The hold clock_ahead is always logged at most once a minute, because a clock near the limit may
// cross it repeatedly.
func (l *lifecycle) hold(now time.Time, h Hold) (began bool) {
	last, held := l.holds[h.Cause]
	h.logged = last.logged
	limit := latest(h.logged, l.clockLogged)
	if h.Cause != CauseClockAhead {
		limit = h.logged
	}
	if limit.IsZero() || now.Sub(limit) >= time.Minute || !h.Until.Equal(last.Until) {
		h.logged = now
		if h.Cause == CauseClockAhead {
			l.clockLogged = now
		}
		level, attrs := Warn, []any{"cause", string(h.Cause), "reason", h.Reason}
		switch h.Cause {
		case CauseClockAhead:
			level = Error
		case CauseDraining:
			level = Info
		case CauseDuplicate, CauseIsolated, CauseUnhealthy, CauseFlapping, CauseCordoned:
		}
		if !h.Until.IsZero() {
			attrs = append(attrs, "for", h.Until.Sub(now))
		}
		l.log(level, "owns nothing", attrs...)
	}
	l.holds[h.Cause] = h
	return !held
}

// release ends a hold, and reports whether there was one. The caller must announce the new state.
func (l *lifecycle) release(c Cause) (ended bool) {
	hold, ended := l.holds[c]
	delete(l.holds, c)
	if !hold.logged.IsZero() {
		l.log(Info, "hold ended", "cause", string(c), "state", l.state().String())
	}
	return ended
}

// holdWhile starts a hold if there is a reason, and otherwise ends it. It reports whether the hold started or
// ended.
func (l *lifecycle) holdWhile(now time.Time, c Cause, reason string) (changed bool) {
	if reason == "" {
		return l.release(c)
	}
	return l.hold(now, Hold{Cause: c, Reason: reason})
}

// state returns the lease state that this node announces.
func (l *lifecycle) state() lease.State {
	switch {
	case l.phase == Over:
		return lease.Left
	case l.phase != Active:
		return lease.Settling
	case len(l.holds) > 0:
		return lease.Draining
	}
	return lease.Active
}
