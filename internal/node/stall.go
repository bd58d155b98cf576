package node

import "time"

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
// the node must read them before it lets leases expire.
func (s *stall) turn(now time.Time) {
	if now.Sub(s.lastTurn) > s.ttl/8 {
		s.holdExpiryUntil = now.Add(s.backlog())
	}
	s.lastTurn = now
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
