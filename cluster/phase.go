package cluster

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Phase is where an agent is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲            ▲          │
//	   │            └──────────┤ its clock is ahead of the others'
//	   └───────────────────────┘ it was stopped for longer than the TTL
//
// Draining is not a phase: it is a wish that holds in all of them.
type Phase uint8

const (
	joining  Phase = iota // nobody has let it in yet
	settling              // in, but owns nothing yet
	active                // takes part in placement
	over                  // left or closed
)

// String returns "joining", "settling", "active" or "over".
func (p Phase) String() string {
	return [...]string{"joining", "settling", "active", "over"}[p]
}

// entered is told by the joiner: a seed has answered, or none is there to.
func (l *loop) entered(answered bool) {
	if l.phase != joining {
		return
	}
	l.log.Info("joined", "seed_answered", answered, "members", len(l.set.View().Members))
	now := l.agent.now()
	l.phase = settling
	l.settled = now.Add(2 * l.cfg.QuietWindow)
	l.changed = true
	l.judgeClock(now)
}

// step moves on from settling. A node that finds others active takes its place
// at once: they gather joins into one change. Where nobody is active, many nodes
// may be starting together; they wait until no more come, and then all go
// together with the first.
func (l *loop) step(now time.Time) {
	if l.phase != settling || l.clockAhead() {
		return
	}
	if l.changed {
		l.changed = false
		l.settled = earliest(now.Add(2*l.cfg.QuietWindow), l.agent.startedAt().Add(l.cfg.StartupGrace))
	}
	if now.Before(l.settled) && !l.othersActive() {
		return
	}
	l.phase = active
	l.settled = time.Time{}
	l.announce()
	l.log.Info("settled", "state", l.set.State().String())
}

// announce tells everybody what the phase and the operator say.
func (l *loop) announce() {
	state := lease.Active
	switch {
	case l.phase == over:
		state = lease.Left
	case l.phase != active:
		state = lease.Settling
	case l.draining:
		state = lease.Draining
	}
	l.set.SetState(state)
	l.tell()
}

func (l *loop) othersActive() bool {
	for _, m := range l.set.View().Members {
		if m.ID != l.agent.self && (m.State == lease.Active || m.State == lease.Draining) {
			return true
		}
	}
	return false
}

func (l *loop) drain() {
	l.draining = true
	l.announce()
	l.log.Info("draining")
}

func (l *loop) undrain() {
	l.draining = false
	l.announce()
	l.log.Info("undraining")
}

// farewell ends the own lease in the eyes of all others, and of this node.
func (l *loop) farewell() {
	l.phase = over
	l.announce()
	l.lease = new(ownLease)
	l.publishNow()
	l.log.Info("leaving")
}

// deafness is for how long a node that was stopped ignores what arrives: its
// socket and queues are full of packets that say that they are new and are as
// old as the stop was long.
func (l *loop) deafness() time.Duration { return min(500*time.Millisecond, l.cfg.LeaseTTL/8) }

// checkStall finds out whether this process was stopped (SIGSTOP, a starved
// machine). If it was for a while, the others' heartbeats wait in its socket, and
// it must read them before it holds anybody for dead. If it was for so long that
// the others hold its own lease for expired and have taken over, it owns nothing,
// knows nothing, and has to come in again.
func (l *loop) checkStall(now time.Time) {
	stopped := now.Sub(l.turn)
	l.turn = now
	if stopped > l.cfg.LeaseTTL/8 {
		l.patient = now.Add(l.deafness())
	}
	if l.phase == over || l.lease.holds(l.agent.started) {
		return
	}
	l.log.Warn("fenced: this process was stopped for longer than the lease lasts; releasing everything and joining again",
		"ttl", l.cfg.LeaseTTL)
	l.stats.Fences++
	l.phase = joining
	l.deaf = now.Add(l.deafness())
	l.fence()
	l.set.Suspend(now)
	l.announce()
	l.changed = false // what is known now is not worth publishing
	l.publish = time.Time{}
}

// hearAgain ends the deafness and has the joiner knock.
func (l *loop) hearAgain(now time.Time) {
	if l.deaf.IsZero() || now.Before(l.deaf) {
		return
	}
	l.deaf = time.Time{}
	select {
	case l.rejoin <- struct{}{}:
	default: // it has been told already
	}
}

func (l *loop) clockAhead() bool {
	limit := l.cfg.MaxSkew
	if l.phase != active {
		limit -= limit / 10 // so that a clock near the limit does not flap
	}
	return l.set.ClockAhead() > limit
}

// judgeClock fences this node while its wall clock is so far ahead that the
// others reject its heartbeats.
func (l *loop) judgeClock(now time.Time) {
	if l.phase != active || !l.clockAhead() {
		return
	}
	l.log.Error("fenced: this node's clock is ahead of the others', which therefore reject its heartbeats; set the clock",
		"ahead", l.set.ClockAhead(), "max_skew", l.cfg.MaxSkew)
	l.stats.Fences++
	l.phase = settling
	l.settled = now
	l.fence()
	l.announce()
}
