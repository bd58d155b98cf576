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
// clock: if most are ahead of ours, ours is the odd one.
type stamp struct {
	clock time.Duration
	until time.Time
}

// ClockAhead returns how far this node's wall clock is ahead of the cluster's;
// negative if it is behind. Beyond MaxSkew the others reject this node's beats,
// so it must not believe that it owns anything.
func (s *Set) ClockAhead() time.Duration { return -s.clock }

// tooFarAhead reports whether a beat with the given clock (relative to ours)
// is to be rejected, and remembers it if so.
func (s *Set) tooFarAhead(now time.Time, h Handle, clock time.Duration) bool {
	if clock-s.clock <= s.params.MaxSkew {
		delete(s.ahead, h)
		return false
	}
	if _, ok := s.ahead[h]; ok || len(s.ahead) < MaxNodes {
		s.ahead[h] = stamp{clock: clock, until: now.Add(s.params.TTL)}
		s.judgeClock(now)
	}
	return clock-s.clock > s.params.MaxSkew
}

// judgeClock recomputes the cluster's clock: O(n log n), once a beat and for
// every rejection.
func (s *Set) judgeClock(now time.Time) {
	clocks := make([]time.Duration, 1, 1+len(s.byID)+len(s.ahead)) // the first is ours: 0
	for _, e := range s.byID {
		if e.status == live && e != s.self {
			clocks = append(clocks, e.clock)
		}
	}
	for h, a := range s.ahead {
		if now.After(a.until) {
			delete(s.ahead, h)
			continue
		}
		if e := s.known[h]; e == nil || e.status != live { // else it is counted above
			clocks = append(clocks, a.clock)
		}
	}
	slices.Sort(clocks)
	s.clock = clocks[(len(clocks)-1)/2]
}
