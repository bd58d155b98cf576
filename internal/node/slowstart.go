package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// slowStart makes the weight of a node grow when it begins to own partitions.
type slowStart struct {
	*Node
	over   time.Duration // from the first step to the full weight; 0 = no slow starts
	wanted uint32        // the full weight
	began  time.Time     // zero = no slow start is in progress
	next   time.Time     // when a step is due
}

// SlowStartSteps is the number of equal steps in which the weight grows. The first step is at once, and the
// last one SlowStart later.
const SlowStartSteps = 10

// begin starts a slow start. The first step is due at once.
func (s *slowStart) begin(now time.Time) { s.began, s.next = now, now }

// stop ends the slow start and reports whether there was one.
func (s *slowStart) stop() bool {
	was := !s.began.IsZero()
	s.began, s.next = time.Time{}, time.Time{}
	return was
}

// slowStartWeight returns the weight, at least 1, that a node has when its slow start began since ago, and
// how long after the beginning the next step is due. At the end it returns full and 0.
func slowStartWeight(full uint32, since, slowStart time.Duration) (weight uint32, next time.Duration) {
	every := slowStart / (SlowStartSteps - 1)
	step := 1 + since/every
	if step >= SlowStartSteps {
		return full, 0
	}
	return max(1, uint32(uint64(full)*uint64(step)/SlowStartSteps)), step * every
}

// slowStartOrNot decides, before the node announces a state, between a slow start and the full weight at
// once. There is a slow start whenever the node begins to own partitions while others own some: after the
// start, a drain or a fence, others have served its keys and its caches are cold. If nodes start together,
// all are cold, and slow starts would only shuffle keys. A strategy with an assignment fills a new node in
// passes anyway.
func (s *slowStart) slowStartOrNot(now time.Time, state lease.State) {
	if state == s.set.State() {
		return
	}
	s.stopSlowStart()
	if state == lease.Active {
		if s.over > 0 && !s.assigner.on && s.wanted > 1 && !s.life.coldStart && s.othersOwn() {
			s.begin(now)
			s.log(Info, "slow start began", "wanted", s.wanted, "over", s.over)
			s.step(now)
		} else {
			s.weigh(s.wanted)
		}
	}
	s.life.coldStart = s.life.coldStart && state == lease.Settling
}

// grow takes the next step of the slow start if it is due.
func (s *slowStart) grow(now time.Time) {
	if due(now, s.next) {
		s.step(now)
		s.announceNews(now)
	}
}

// step announces the weight of the present step.
func (s *slowStart) step(now time.Time) {
	weight, next := slowStartWeight(s.wanted, now.Sub(s.began), s.over)
	s.next = s.began.Add(next)
	s.weigh(weight)
	if next == 0 {
		s.stopSlowStart()
	}
}

// stopSlowStart ends the slow start, if there is one, and leaves the weight where it is.
func (s *slowStart) stopSlowStart() {
	if s.stop() {
		s.log(Info, "slow start ended", "weight", s.set.Self().Weight, "wanted", s.wanted)
	}
}

// weigh announces a weight in this node's record.
func (s *slowStart) weigh(w uint32) {
	if w != s.set.Self().Weight {
		s.set.Update(func(r *lease.Record) { r.Weight = w })
	}
}

// othersOwn reports whether another node can own partitions.
func (n *Node) othersOwn() bool {
	return slices.ContainsFunc(n.set.View().Members, func(m lease.Member) bool {
		return m.ID != n.self && m.Candidate()
	})
}
