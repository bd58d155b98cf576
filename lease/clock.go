package lease

import (
	"slices"
	"time"
)

// The cluster's clock is the lower median of all wall clocks that a node hears
// of, its own included. Skew is judged against it, not against the own clock
// alone: otherwise a node whose own clock is slow would reject members that
// everybody else accepts, and would compute other owners than they do. With
// fewer than three clocks the lower median of a node that is not ahead is its
// own clock.

// stamp is the clock of a node whose beats were rejected. It still counts as a
// clock, in place of the one that the node had before: if most are ahead of
// ours, ours is the odd one, or was just set back.
type stamp struct {
	clock time.Duration
	until time.Time
}

// ClockAhead returns how far this node's wall clock is ahead of the cluster's;
// negative if it is behind. Beyond MaxSkew the others reject this node's beats,
// so it must not believe that it owns anything.
func (s *Set) ClockAhead() time.Duration { return -s.clock }

// maxClock bounds clocks relative to each other, so that two of them can be
// added up. A node that starts in 1970 must not make a digest unreadable.
const maxClock = 100 * 365 * 24 * time.Hour

func inRange(clock time.Duration) time.Duration {
	return min(max(clock, -maxClock), maxClock)
}

// tooFarAhead reports whether beats with the given clock (relative to ours) are
// to be rejected.
func (s *Set) tooFarAhead(clock time.Duration) bool { return clock-s.clock > s.params.MaxSkew }

// noteClocks notes the clocks of beats that seem too far ahead, forgets those
// that no longer do, and judges anew with all of them at once: a slow node that
// joins takes its first full sync whole, and a flood of such beats costs no more
// than one judgement.
func (s *Set) noteClocks(now time.Time, lag time.Duration, beats []Beat) {
	heard := false
	for i := range beats {
		b := &beats[i]
		clock := inRange(b.Clock + lag)
		_, noted := s.ahead[b.Handle]
		switch ahead := s.tooFarAhead(clock); {
		case (!ahead && !noted) || s.stale(b) || b.Handle == s.self.handle:
		case !ahead:
			delete(s.ahead, b.Handle)
		case noted || len(s.ahead) < MaxNodes:
			s.ahead[b.Handle] = stamp{clock: clock, until: now.Add(s.params.TTL)}
			heard = true
		}
	}
	if heard {
		s.updateClusterClock(now)
	}
}

// updateClusterClock recomputes the cluster's clock: O(n log n), once a beat and at most
// twice a message.
func (s *Set) updateClusterClock(now time.Time) {
	clocks := make([]time.Duration, 1, 1+len(s.byID)+len(s.ahead)) // the first is ours: 0
	for h, a := range s.ahead {
		if now.After(a.until) {
			delete(s.ahead, h)
			continue
		}
		clocks = append(clocks, a.clock)
	}
	for _, e := range s.byID {
		if _, counted := s.ahead[e.handle]; !counted && e.status == live && e != s.self {
			clocks = append(clocks, e.clock)
		}
	}
	slices.Sort(clocks)
	s.clock = clocks[(len(clocks)-1)/2]
}
