package cluster

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// ramp is the growth of this node's weight while it is new, or none.
type ramp struct {
	began time.Time
	next  time.Time // when a step is due
}

// rampSteps is in how many equal steps the weight grows: a tenth at once, and
// all of it RampUp later.
const rampSteps = 10

// rampWeight returns the share of full, at least 1, that a node has some time
// after its ramp began, and how long after that begin the next step is due; at
// the end full and 0.
func rampWeight(full uint32, since, rampUp time.Duration) (weight uint32, next time.Duration) {
	every := rampUp / (rampSteps - 1)
	step := 1 + since/every
	if step >= rampSteps {
		return full, 0
	}
	return max(1, uint32(uint64(full)*uint64(step)/rampSteps)), step * every
}

// rampOrNot decides, before this node takes on a state, whether its weight is to
// grow to the full one or it has that at once. It grows whenever the node begins
// to own while others do: after the start, and likewise after a drain or a
// fence, since others served its keys meanwhile and its caches are cold. Where
// nodes start together all are cold, and ramps would only shuffle. A strategy that
// remembers fills a new node in passes anyway.
func (l *loop) rampOrNot(state lease.State) {
	if state == l.set.State() {
		return
	}
	l.stopRamp()
	if state == lease.Active {
		now := l.agent.now()
		if l.cfg.RampUp > 0 && l.memory == nil && l.weight > 1 && !l.together && l.othersOwn() {
			l.ramp = ramp{began: now, next: now}
			l.log.Info("ramp-up began", "wanted", l.weight, "over", l.cfg.RampUp)
			l.climb(now)
		} else {
			l.weigh(l.weight)
		}
	}
	l.together = l.together && state == lease.Settling
}

// climb takes the steps of the ramp that are due, and reports whether there
// were any.
func (l *loop) climb(now time.Time) bool {
	if l.ramp.next.IsZero() || now.Before(l.ramp.next) {
		return false
	}
	weight, next := rampWeight(l.weight, now.Sub(l.ramp.began), l.cfg.RampUp)
	l.weigh(weight)
	if l.ramp.next = l.ramp.began.Add(next); next == 0 {
		l.stopRamp()
	}
	return true
}

// stopRamp ends the ramp, if there is one, and leaves the weight where it is.
func (l *loop) stopRamp() {
	if !l.ramp.began.IsZero() {
		l.log.Info("ramp-up ended", "weight", l.set.Self().Weight, "wanted", l.weight)
	}
	l.ramp = ramp{}
}

// setWeight is the operator's word: it holds at once, also during a ramp.
func (l *loop) setWeight(w uint32) {
	l.stopRamp()
	l.weight = w
	if w != l.set.Self().Weight {
		l.weigh(w)
		l.tell()
	}
}

// weigh states a weight in the own record.
func (l *loop) weigh(w uint32) {
	if w != l.set.Self().Weight {
		l.set.Update(func(r *lease.Record) { r.Weight = w })
	}
}

// othersOwn reports whether there is another node that can own partitions.
func (l *loop) othersOwn() bool {
	return slices.ContainsFunc(l.set.View().Members, func(m lease.Member) bool {
		return m.ID != l.agent.self && m.Candidate()
	})
}
