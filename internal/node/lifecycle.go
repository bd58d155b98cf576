package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Phase is where a node is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲            ▲          │
//	   │            └──────────┤ its clock is ahead of the cluster's
//	   └───────────────────────┘ its own lease expired
//
// Draining is not a phase: it is a command that holds in all phases.
type Phase uint8

// The phases.
const (
	Joining  Phase = iota // no seed has answered yet
	Settling              // a member that owns nothing yet
	Active                // takes part in placement, draining or not
	Over                  // left or closed
)

// String returns "joining", "settling", "active" or "over".
func (p Phase) String() string {
	return [...]string{"joining", "settling", "active", "over"}[p]
}

// lifecycle moves a node from phase to phase.
type lifecycle struct {
	quiet, grace time.Duration

	phase       Phase
	draining    bool      // by command
	clockFenced bool      // settling because the own clock is ahead
	settleAt    time.Time // when settling ends if no other node is active
	settleBy    time.Time // when settling ends even if nodes keep joining
	coldStart   bool      // no other node owned anything at the join
	entering    bool      // active, but no table was published since
}

// joined begins to settle. A node that settles late (because more nodes join) does
// so within the grace.
func (l *lifecycle) joined(now time.Time, coldStart bool) {
	l.phase = Settling
	l.settleAt = now.Add(2 * l.quiet)
	l.settleBy = now.Add(l.grace)
	l.coldStart = coldStart
}

// extend waits for more nodes to join. A change of the live set while all are
// settling means that the cluster is still starting.
func (l *lifecycle) extend(now time.Time) {
	l.settleAt = earliest(now.Add(2*l.quiet), l.settleBy)
}

// settle makes the node active if settling is over. A node that finds others active
// becomes active at once, since they gather joins into one change. Without active
// nodes, many may be starting together: they wait until no more come, and all become
// active with the first of them.
func (l *lifecycle) settle(now time.Time, othersActive bool) bool {
	if l.phase != Settling || (now.Before(l.settleAt) && !othersActive) {
		return false
	}
	l.phase = Active
	l.entering = true
	l.clockFenced = false
	l.settleAt = time.Time{}
	return true
}

// fence sends the node back to joining: its own lease expired.
func (l *lifecycle) fence() {
	l.phase = Joining
	l.clockFenced = false
}

// fenceClock sends the node back to settling until its clock is right.
func (l *lifecycle) fenceClock(now time.Time) {
	l.phase = Settling
	l.clockFenced = true
	l.settleAt, l.settleBy = now, now
}

// places reports whether the node computes tables: while it is active, and also
// while its clock keeps it from owning anything, since clients still ask it.
func (l *lifecycle) places() bool {
	return l.phase == Active || (l.phase == Settling && l.clockFenced)
}

// state returns the lease state to announce.
func (l *lifecycle) state() lease.State {
	switch {
	case l.phase == Over:
		return lease.Left
	case l.phase != Active:
		return lease.Settling
	case l.draining:
		return lease.Draining
	}
	return lease.Active
}

// announce sends the state that follows from phase and commands.
func (n *Node) announce(now time.Time) {
	state := n.life.state()
	n.rampOrNot(now, state)
	n.set.SetState(state)
	n.announceNews(now)
}

// settle makes a settling node active when it is time.
func (n *Node) settle(now time.Time) {
	if n.life.phase != Settling {
		return
	}
	if n.clockAhead() {
		n.warnClock(now)
		return
	}
	if n.changed {
		n.changed = false // no table is due before the node is active
		n.life.extend(now)
	}
	if n.life.settle(now, n.set.OthersActive()) {
		n.announce(now)
		n.log(Info, "settled", "state", n.set.State().String())
	}
}
