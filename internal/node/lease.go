package node

import (
	"sync/atomic"
	"time"
)

// OwnLease is the time until which the own lease holds in the view of the nodes
// that received the latest heartbeat. Any goroutine may read it. A fence replaces
// it by a new one, so that an older [View] never sees its lease come back.
type OwnLease struct {
	until atomic.Int64 // ns after the start of the node; 0 = expired
}

// Holds reports whether the lease holds at a time after the start of the node.
func (l *OwnLease) Holds(sinceStart time.Duration) bool {
	return int64(sinceStart) <= l.until.Load()
}

// renew counts the own lease from a heartbeat. It ends an eighth of the TTL before the
// lease ends for others: they may know the heartbeat by its age alone, rounded by a
// sixteenth; the other sixteenth is for cluster time, which differs between nodes by the
// time that a message takes, and for small steps of it.
func (n *Node) renew(beat time.Time) {
	ttl := n.cfg.LeaseTTL
	n.lease.until.Store(int64(beat.Add(ttl - ttl/8).Sub(n.started)))
}

// stall detects that this process was paused (SIGSTOP, a starved machine, a
// debugger), by the time between two turns.
type stall struct {
	ttl             time.Duration
	lastTurn        time.Time
	discardUntil    time.Time // messages that arrive earlier are too old to believe; zero = not discarding
	holdExpiryUntil time.Time // no lease of another node expires earlier
}

// backlog is how long the queues take to empty after a pause. They are full of packets
// that claim to be new and are as old as the pause was long.
func (s *stall) backlog() time.Duration { return min(500*time.Millisecond, s.ttl/8) }

// turn notes a turn. After a pause, the heartbeats of others wait in the socket, and
// the node must read them before it lets leases expire. turn returns the length of the
// pause, 0 for none.
func (s *stall) turn(now time.Time) (pause time.Duration) {
	if since := now.Sub(s.lastTurn); since > s.ttl/8 {
		s.holdExpiryUntil = now.Add(s.backlog())
		pause = since
	}
	s.lastTurn = now
	return pause
}

// discard begins to discard messages.
func (s *stall) discard(now time.Time) { s.discardUntil = now.Add(s.backlog()) }

// discarding reports whether a message that arrives now is too old to believe.
func (s *stall) discarding(now time.Time) bool { return now.Before(s.discardUntil) }

// discarded reports, once, that the discarding is over.
func (s *stall) discarded(now time.Time) bool {
	if s.discardUntil.IsZero() || now.Before(s.discardUntil) {
		return false
	}
	s.discardUntil = time.Time{}
	return true
}
