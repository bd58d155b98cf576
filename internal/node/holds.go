package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Hold is a reason for which a node owns nothing. There may be several at the same time.
type Hold struct {
	Cause  Cause
	Until  time.Time // when it ends by itself; zero = when its cause ends
	Reason string    // what has happened, for people

	logged time.Time // when it was last logged; zero = not since it began
}

// Cause is the kind of a hold.
type Cause string

// The causes, in the order in which to solve them, because an earlier cause may be the reason for a later
// one.
const (
	CauseDuplicate  Cause = "duplicate"   // a later process may run under its id
	CauseClockAhead Cause = "clock_ahead" // others reject its heartbeats, because its clock is ahead
	CauseIsolated   Cause = "isolated"    // it sees too few members, or is in the minority of a split
	CauseUnhealthy  Cause = "unhealthy"   // its application is unhealthy
	CauseFlapping   Cause = "flapping"    // it comes and goes too often
	CauseCordoned   Cause = "cordoned"    // it is cordoned; only in a View
	CauseDraining   Cause = "draining"    // it was told to drain
)

// holds are the holds of a node.
type holds map[Cause]Hold

func (h holds) has(c Cause) bool { _, ok := h[c]; return ok }

// list returns the holds in the order of their causes.
func (h holds) list() (all []Hold) {
	for _, c := range []Cause{CauseDuplicate, CauseClockAhead, CauseIsolated, CauseUnhealthy, CauseFlapping, CauseCordoned, CauseDraining} {
		if hold, ok := h[c]; ok {
			all = append(all, hold)
		}
	}
	return all
}

// hold begins a hold, or replaces its end and reason, and reports whether it is new. The caller must announce
// the new state. hold logs when a hold begins or gets another end, and otherwise at most once a minute. The
// hold clock_ahead is logged at most once a minute altogether, because a clock near the limit comes and goes.
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

// holdWhile holds while there is a reason. It reports whether the hold began or ended.
func (l *lifecycle) holdWhile(now time.Time, c Cause, reason string) (changed bool) {
	if reason == "" {
		return l.release(c)
	}
	return l.hold(now, Hold{Cause: c, Reason: reason})
}

// state returns the lease state to announce.
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
