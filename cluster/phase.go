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

// The phases.
const (
	PhaseJoining  Phase = iota // nobody has let it in yet
	PhaseSettling              // in, but owns nothing yet
	PhaseActive                // takes part in placement, draining or not
	PhaseOver                  // left or closed
)

// String returns "joining", "settling", "active" or "over".
func (p Phase) String() string {
	return [...]string{"joining", "settling", "active", "over"}[p]
}

// entered is told by the joiner: a seed has answered, or none is there to. What
// it learned before a fence is worth nothing after it.
func (l *loop) entered(fences uint64, answered bool) {
	if l.phase != PhaseJoining || l.stats.Fences != fences {
		return
	}
	l.log.Info("joined", "seed_answered", answered, "members", len(l.set.View().Members))
	now := l.agent.now()
	l.phase = PhaseSettling
	l.heard = time.Time{}
	l.settled = now.Add(2 * l.cfg.QuietWindow)
	l.settleBy = now.Add(l.cfg.StartupGrace)
	l.changed = true
	l.together = !l.othersOwn()
	l.show() // Start returns now, and who looks then wants to see who answered
}

// step moves on from settling. A node that finds others active takes its place
// at once: they gather joins into one change. Where nobody is active, many nodes
// may be starting together; they wait until no more come, and then all go
// together with the first.
func (l *loop) step(now time.Time) {
	if l.phase != PhaseSettling {
		return
	}
	if l.clockAhead() {
		l.warnClock(now)
		return
	}
	if l.changed {
		l.changed = l.clockFenced // then there is a table to keep up to date
		l.settled = earliest(now.Add(2*l.cfg.QuietWindow), l.settleBy)
	}
	if now.Before(l.settled) && !l.othersActive() {
		return
	}
	l.phase = PhaseActive
	l.entering = true
	l.clockFenced = false
	l.settled = time.Time{}
	l.announce()
	l.log.Info("settled", "state", l.set.State().String())
}

// announce tells everybody what the phase and the operator say.
func (l *loop) announce() {
	state := lease.Active
	switch {
	case l.phase == PhaseOver:
		state = lease.Left
	case l.phase != PhaseActive:
		state = lease.Settling
	case l.draining:
		state = lease.Draining
	}
	l.rampOrNot(state)
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
	if l.draining {
		return // Leave drains, whoever has done so before
	}
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
	l.phase = PhaseOver
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
	if l.phase == PhaseOver || l.lease.holds(l.agent.started) {
		return
	}
	l.stats.Fences++
	l.phase = PhaseJoining
	l.clockFenced = false
	l.deaf = now.Add(l.deafness())
	l.fence()
	l.log.Warn("fenced: this process was stopped, or could send nothing, for longer than its lease lasts; joining again",
		"ttl", l.cfg.LeaseTTL)
	l.set.ExpireOthers(now)
	l.announce()
	l.changed = false // what is known now is not worth publishing
	l.publish = time.Time{}
}

// hearAgain ends the deafness and has the joiner knock. Should that take long,
// because the joiner waits for somebody who does not answer, the news that comes
// in by gossip is as good.
func (l *loop) hearAgain(now time.Time) {
	if !l.deaf.IsZero() && !now.Before(l.deaf) {
		l.deaf, l.heard, l.asked = time.Time{}, now, false
		select {
		case l.rejoin <- struct{}{}:
		default: // it has been told already
		}
	}
	if l.heard.IsZero() || now.Before(l.enterAt()) || len(l.set.Peers(nil)) == 0 {
		return
	}
	// The latest heartbeats of some came while this node was deaf, and nobody
	// passes on for ever what has been passed on: they would be missing until
	// their next ones.
	if missing := l.set.ExpiredHandles(); !l.asked && len(missing) > 0 {
		l.asked = true
		l.askFor(now, missing)
		return
	}
	l.entered(l.stats.Fences, true)
}

// enterAt is when a node that hears again enters by what gossip has told it: a
// while after it began to hear, and after it asked for those that it misses.
func (l *loop) enterAt() time.Time {
	wait := 4 * l.cfg.QuietWindow
	if l.asked {
		wait += l.cfg.QuietWindow
	}
	return l.heard.Add(wait)
}

func (l *loop) clockAhead() bool {
	limit := l.cfg.MaxSkew
	if l.clockFenced {
		limit -= limit / 10 // so that a clock near the limit does not flap
	}
	return l.set.ClockAhead() > limit
}

// judgeClock fences this node while its wall clock is so far ahead that the
// others reject its heartbeats.
func (l *loop) judgeClock(now time.Time) {
	if l.phase != PhaseActive || !l.clockAhead() {
		return
	}
	l.stats.Fences++
	l.phase = PhaseSettling
	l.clockFenced = true
	l.settled, l.settleBy = now, now
	l.fence()
	l.announce()
	l.warnClock(now)
}

// warnClock tells the operator once a minute why this node owns nothing.
func (l *loop) warnClock(now time.Time) {
	if now.Sub(l.warned) < time.Minute {
		return
	}
	l.warned = now
	l.log.Error("fenced: this node's clock is ahead of the others', which therefore reject its heartbeats; set the clock",
		"ahead", l.set.ClockAhead(), "max_skew", l.cfg.MaxSkew)
}

// warnSkew tells the operator, at most once a minute, that heartbeats were
// rejected for their stamps.
func (l *loop) warnSkew(now time.Time) {
	n := l.set.Stats().SkewRejected
	if n == l.rejected || now.Sub(l.warnedSkew) < time.Minute {
		return
	}
	l.log.Warn("rejected heartbeats that are stamped too far ahead; set the clock of the node that sent them",
		"heartbeats", n-l.rejected, "max_skew", l.cfg.MaxSkew)
	l.rejected, l.warnedSkew = n, now
}
