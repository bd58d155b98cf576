package lease

import (
	"maps"
	"slices"
	"time"
)

// The cluster's clock is the lower median of all known wall clocks, including this node's. A node measures
// skew against the cluster's clock instead of its own clock. Otherwise a node with a slow clock would reject
// members that all other nodes accept, and would compute different owners. With fewer than three clocks, the
// lower median is the earliest clock.

// skew is the protocol that finds nodes with wrong clocks. The census stores the cluster's clock, and counts the other clocks
// relative to it.
type skew struct {
	*core
	ahead map[Handle]aheadClock // clocks of nodes whose heartbeats this node rejected
}

// aheadClock is the clock of a node with rejected heartbeats. The median uses it instead of the node's
// earlier clock. If most clocks turn out to be ahead of this node's clock, then this node's clock is wrong or
// was just set back.
type aheadClock struct {
	clock time.Duration
	until time.Time
}

// Ahead returns the nodes whose heartbeats this node rejects, and how far their clocks are ahead of the
// cluster's. It leaves out nodes whose records are unknown. It costs O(1) if there are no rejected
// heartbeats.
func (s *skew) Ahead() map[NodeID]time.Duration {
	if len(s.ahead) == 0 {
		return nil
	}
	all := make(map[NodeID]time.Duration)
	for h, a := range s.ahead {
		// Check again, because the median may have moved. The node's next heartbeat removes an outdated
		// entry.
		if e := s.known[h]; e != nil && s.tooFarAhead(a.clock) {
			all[e.rec.ID] = a.clock - s.census.clock
		}
	}
	return all
}

// ClockAhead returns how far this node's wall clock is ahead of the cluster's. It is negative if the clock is
// behind. If the result exceeds MaxSkew, other nodes reject this node's heartbeats, so this node must not own
// anything.
func (s *skew) ClockAhead() time.Duration { return -s.census.clock }

// maxClock limits relative clocks, so that the sum of two clocks cannot overflow. It is large enough that a
// node whose clock shows 1970 still sends readable messages.
const maxClock = 100 * 365 * 24 * time.Hour

func inRange(clock time.Duration) time.Duration {
	return min(max(clock, -maxClock), maxClock)
}

// tooFarAhead reports whether this node rejects heartbeats from a clock, given relative to this node's clock.
func (s *skew) tooFarAhead(clock time.Duration) bool { return clock-s.census.clock > s.params.MaxSkew }

// apply stores the clocks that seem too far ahead, deletes clocks that are no longer ahead, and then updates
// the cluster's clock once per message. So a joining node with a slow clock accepts its whole first full
// sync, and many rejected heartbeats in a message cost only one update. The lag argument is how far the
// sender's clock is ahead of this node's clock.
func (s *skew) apply(now time.Time, lag time.Duration, heartbeats []Heartbeat) {
	changed := false
	for i := range heartbeats {
		b := &heartbeats[i]
		clock := inRange(b.Clock + lag)
		_, noted := s.ahead[b.Handle]
		switch ahead := s.tooFarAhead(clock); {
		case (!ahead && !noted) || s.stale(now, s.known[b.Handle], b) || b.Handle == s.self.handle:
		case !ahead:
			delete(s.ahead, b.Handle)
		case noted || len(s.ahead) < MaxNodes:
			s.ahead[b.Handle] = aheadClock{clock: clock, until: now.Add(s.params.TTL)}
			changed = true
		}
	}
	if changed {
		s.update(now)
	}
}

// update recomputes the cluster's clock. It usually costs O(1), but O(n) if the cluster's clock changes or if
// a node's clock is too far ahead. A Set calls update once for each heartbeat of this node, and at most twice for each
// message that it receives.
func (s *skew) update(now time.Time) {
	maps.DeleteFunc(s.ahead, func(_ Handle, a aheadClock) bool { return now.After(a.until) })
	c := s.census
	if len(s.ahead) == 0 {
		c.all++ // this node
		c.count(0, 1)
	} else {
		c.all, c.earlier, c.equal = 0, 0, 0
		for clock := range s.clocks {
			c.all++
			c.count(clock, 1)
		}
	}
	if median := (c.all - 1) / 2; median < c.earlier || median >= c.earlier+c.equal {
		s.census.clock = slices.Sorted(s.clocks)[median]
		s.census.earlier, s.census.equal = 0, 0
		for _, v := range s.vitals {
			if v != s.self.vitals {
				s.census.count(v.clock, 1)
			}
		}
	}
}

// clocks yields all known clocks relative to this node's clock, which comes first.
func (s *skew) clocks(yield func(time.Duration) bool) {
	if !yield(0) {
		return
	}
	for _, a := range s.ahead {
		if !yield(a.clock) {
			return
		}
	}
	for i, v := range s.vitals {
		if v == s.self.vitals {
			continue
		}
		if _, ahead := s.ahead[s.order[i]]; !ahead && !yield(v.clock) {
			return
		}
	}
}
