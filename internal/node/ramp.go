package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// ramp is the growth of the weight of a node that begins to own.
type ramp struct {
	over   time.Duration // from the first step to the full weight; 0 = no ramps
	wanted uint32        // the full weight
	began  time.Time     // zero = no ramp is under way
	next   time.Time     // when a step is due
}

// RampSteps is the number of equal steps in which the weight grows: the first at
// once, the last RampUp later.
const RampSteps = 10

// begin starts a ramp. The first step is due at once.
func (r *ramp) begin(now time.Time) { r.began, r.next = now, now }

// due reports whether a step is due.
func (r *ramp) due(now time.Time) bool { return !r.next.IsZero() && !now.Before(r.next) }

// step returns the weight of the present step, and whether it is the last one.
func (r *ramp) step(now time.Time) (weight uint32, last bool) {
	weight, next := rampWeight(r.wanted, now.Sub(r.began), r.over)
	r.next = r.began.Add(next)
	return weight, next == 0
}

// stop ends the ramp and reports whether there was one.
func (r *ramp) stop() bool {
	was := !r.began.IsZero()
	r.began, r.next = time.Time{}, time.Time{}
	return was
}

// rampWeight returns the share of full, at least 1, that a node has some time
// after its ramp began, and how long after that begin the next step is due; at
// the end full and 0.
func rampWeight(full uint32, since, rampUp time.Duration) (weight uint32, next time.Duration) {
	every := rampUp / (RampSteps - 1)
	step := 1 + since/every
	if step >= RampSteps {
		return full, 0
	}
	return max(1, uint32(uint64(full)*uint64(step)/RampSteps)), step * every
}

// rampOrNot decides, before the node announces a state, between a ramp and the full
// weight at once. The weight grows whenever the node begins to own while others do:
// after the start, a drain or a fence, others served its keys and its caches are
// cold. Where nodes start together all are cold, and ramps would only shuffle keys. A
// strategy with an assignment fills a new node in passes anyway.
func (n *Node) rampOrNot(now time.Time, state lease.State) {
	if state == n.set.State() {
		return
	}
	n.stopRamp()
	if state == lease.Active {
		if n.ramp.over > 0 && n.assigner == nil && n.ramp.wanted > 1 && !n.life.coldStart && n.othersOwn() {
			n.ramp.begin(now)
			n.log(Info, "ramp-up began", "wanted", n.ramp.wanted, "over", n.ramp.over)
			n.climb(now)
		} else {
			n.weigh(n.ramp.wanted)
		}
	}
	n.life.coldStart = n.life.coldStart && state == lease.Settling
}

// climb takes the step of the ramp that is due, and reports whether there was one.
func (n *Node) climb(now time.Time) bool {
	if !n.ramp.due(now) {
		return false
	}
	weight, last := n.ramp.step(now)
	n.weigh(weight)
	if last {
		n.stopRamp()
	}
	return true
}

// stopRamp ends the ramp, if there is one, and leaves the weight where it is.
func (n *Node) stopRamp() {
	if n.ramp.stop() {
		n.log(Info, "ramp-up ended", "weight", n.set.Self().Weight, "wanted", n.ramp.wanted)
	}
}

// weigh states a weight in the own record.
func (n *Node) weigh(w uint32) {
	if w != n.set.Self().Weight {
		n.set.Update(func(r *lease.Record) { r.Weight = w })
	}
}

// othersOwn reports whether another node can own partitions.
func (n *Node) othersOwn() bool {
	return slices.ContainsFunc(n.set.View().Members, func(m lease.Member) bool {
		return m.ID != n.self && m.Candidate()
	})
}
