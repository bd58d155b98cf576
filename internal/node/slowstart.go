package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// slowStart increases the weight of a node step by step when the node starts to own partitions.
type slowStart struct {
	*Node
	over   time.Duration // from the first step to the full weight; 0 = no slow starts
	wanted uint32        // the full weight
	began  time.Time     // zero = no slow start is in progress
	next   time.Time     // when a step is due
}

// SlowStartSteps is the number of equal steps in which the weight grows. The first step is immediate, and the
// last step comes after the duration SlowStart.
const SlowStartSteps = 10

// begin starts a slow start. The first step is due immediately.
func (s *slowStart) begin(now time.Time) { s.began, s.next = now, now }

// stop ends the slow start and reports whether there was one.
func (s *slowStart) stop() bool {
	was := !s.began.IsZero()
	s.began, s.next = time.Time{}, time.Time{}
	return was
}

// slowStartWeight returns the weight of a node for the time since the beginning of its slow start. The weight
// is at least 1. The second result is the time from the beginning to the next step. At the end of the slow
// start, the results are full and 0.
func slowStartWeight(full uint32, since, slowStart time.Duration) (weight uint32, next time.Duration) {
	every := slowStart / (SlowStartSteps - 1)
	step := 1 + since/every
	if step >= SlowStartSteps {
		return full, 0
	}
	return max(1, uint32(uint64(full)*uint64(step)/SlowStartSteps)), step * every
}

// slowStartOrNot is called before the node announces a state. It decides whether the node does a slow start,
// or has its full weight immediately.
//
// The node does a slow start whenever it starts to own partitions while other nodes own some. After a start,
// a drain or a fence, its caches are cold because other nodes have served its keys. If nodes start together,
// all their caches are cold, and slow starts would only move keys around. A strategy with an assignment does
// not need slow starts, because it fills a new node in passes.
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

// step announces the weight of the current step.
func (s *slowStart) step(now time.Time) {
	weight, next := slowStartWeight(s.wanted, now.Sub(s.began), s.over)
	s.next = s.began.Add(next)
	s.weigh(weight)
	if next == 0 {
		s.stopSlowStart()
	}
}

// stopSlowStart ends the slow start, if there is one, and keeps the current weight.
func (s *slowStart) stopSlowStart() {
	if s.stop() {
		s.log(Info, "slow start ended", "weight", s.set.Self().Weight, "wanted", s.wanted)
	}
}

// weigh sets a weight in this node's record.
func (s *slowStart) weigh(w uint32) {
	if w != s.set.Self().Weight {
		s.set.Update(func(r *lease.Record) { r.Weight = w })
	}
}

// othersOwn reports whether any other node can own partitions.
func (n *Node) othersOwn() bool {
	return slices.ContainsFunc(n.set.View().Members, func(m lease.Member) bool {
		return m.ID != n.self && m.Candidate()
	})
}
