package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// slowStart is the growth of the weight of a node that begins to own.
type slowStart struct {
	over   time.Duration // from the first step to the full weight; 0 = no slow starts
	wanted uint32        // the full weight
	began  time.Time     // zero = no slow start is under way
	next   time.Time     // when a step is due
}

// SlowStartSteps is the number of equal steps in which the weight grows: the first at
// once, the last SlowStart later.
const SlowStartSteps = 10

// begin starts a slow start. The first step is due at once.
func (s *slowStart) begin(now time.Time) { s.began, s.next = now, now }

// due reports whether a step is due.
func (s *slowStart) due(now time.Time) bool { return !s.next.IsZero() && !now.Before(s.next) }

// step returns the weight of the present step, and whether it is the last one.
func (s *slowStart) step(now time.Time) (weight uint32, last bool) {
	weight, next := slowStartWeight(s.wanted, now.Sub(s.began), s.over)
	s.next = s.began.Add(next)
	return weight, next == 0
}

// stop ends the slow start and reports whether there was one.
func (s *slowStart) stop() bool {
	was := !s.began.IsZero()
	s.began, s.next = time.Time{}, time.Time{}
	return was
}

// slowStartWeight returns the share of full, at least 1, that a node has some time
// after its slow start began, and how long after that begin the next step is due; at
// the end full and 0.
func slowStartWeight(full uint32, since, slowStart time.Duration) (weight uint32, next time.Duration) {
	every := slowStart / (SlowStartSteps - 1)
	step := 1 + since/every
	if step >= SlowStartSteps {
		return full, 0
	}
	return max(1, uint32(uint64(full)*uint64(step)/SlowStartSteps)), step * every
}

// slowStartOrNot decides, before the node announces a state, between a slow start and the full
// weight at once. The weight grows whenever the node begins to own while others do:
// after the start, a drain or a fence, others served its keys and its caches are
// cold. Where nodes start together all are cold, and slow starts would only shuffle keys. A
// strategy with an assignment fills a new node in passes anyway.
func (n *Node) slowStartOrNot(now time.Time, state lease.State) {
	if state == n.set.State() {
		return
	}
	n.stopSlowStart()
	if state == lease.Active {
		if n.slowStart.over > 0 && n.assigner == nil && n.slowStart.wanted > 1 && !n.life.coldStart && n.othersOwn() {
			n.slowStart.begin(now)
			n.log(Info, "slow start began", "wanted", n.slowStart.wanted, "over", n.slowStart.over)
			n.growWeight(now)
		} else {
			n.weigh(n.slowStart.wanted)
		}
	}
	n.life.coldStart = n.life.coldStart && state == lease.Settling
}

// growWeight takes the step of the slow start that is due, and reports whether there was a step.
func (n *Node) growWeight(now time.Time) bool {
	if !n.slowStart.due(now) {
		return false
	}
	weight, last := n.slowStart.step(now)
	n.weigh(weight)
	if last {
		n.stopSlowStart()
	}
	return true
}

// stopSlowStart ends the slow start, if there is one, and leaves the weight where it is.
func (n *Node) stopSlowStart() {
	if n.slowStart.stop() {
		n.log(Info, "slow start ended", "weight", n.set.Self().Weight, "wanted", n.slowStart.wanted)
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
