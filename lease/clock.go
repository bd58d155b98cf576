package lease

import (
	"maps"
	"slices"
	"time"
)

// The cluster's clock is the lower median of all known wall clocks, this node's
// included. Skew is measured against the cluster's clock, not against this node's:
// otherwise a node with a slow clock would reject members that all other nodes accept,
// and would compute other owners. With fewer than three clocks, the lower median of a
// node that is not ahead is its own clock.

// aheadClock is the clock of a node with rejected heartbeats. It counts in the median, in
// place of the node's former clock: if most clocks are ahead of this node's, then this
// node's clock is wrong, or was just set back.
type aheadClock struct {
	clock time.Duration
	until time.Time
}

// Ahead returns by how much the clocks of nodes with rejected heartbeats are ahead, as far as their records
// are known: O(1) if there are none.
func (s *Set) Ahead() map[NodeID]time.Duration {
	if len(s.ahead) == 0 {
		return nil
	}
	all := make(map[NodeID]time.Duration)
	for h, a := range s.ahead {
		// The median may have moved since: the next heartbeat of such a node ends its entry.
		if e := s.known[h]; e != nil && s.tooFarAhead(a.clock) {
			all[e.rec.ID] = a.clock - s.clock
		}
	}
	return all
}

// ClockAhead returns how far this node's wall clock is ahead of the cluster's;
// negative if it is behind. Beyond MaxSkew, other nodes reject this node's heartbeats,
// so it must not own anything.
func (s *Set) ClockAhead() time.Duration { return -s.clock }

// maxClock bounds relative clocks, so that the sum of two cannot overflow. A node
// with a clock in 1970 must still send readable digests.
const maxClock = 100 * 365 * 24 * time.Hour

func inRange(clock time.Duration) time.Duration {
	return min(max(clock, -maxClock), maxClock)
}

// tooFarAhead reports whether heartbeats with the given clock, relative to this node's, are
// rejected.
func (s *Set) tooFarAhead(clock time.Duration) bool { return clock-s.clock > s.params.MaxSkew }

// noteClocks stores the clocks of heartbeats that seem too far ahead, deletes the clocks
// that are no longer ahead, and then updates the cluster's clock once. So a slow node
// that joins accepts its whole first full sync, and a flood of such heartbeats costs one
// update.
func (s *Set) noteClocks(now time.Time, lag time.Duration, heartbeats []Heartbeat) {
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
		s.updateClusterClock(now)
	}
}

func (c *census) clock(clock, of time.Duration, by int) {
	switch {
	case clock < of:
		c.earlier += by
	case clock == of:
		c.equal += by
	}
}

// updateClusterClock recomputes the cluster's clock: O(1) mostly, O(n) if it changes or the
// clock of a node is too far ahead. Once a heartbeat and at most twice a message.
func (s *Set) updateClusterClock(now time.Time) {
	maps.DeleteFunc(s.ahead, func(_ Handle, a aheadClock) bool { return now.After(a.until) })
	c := s.census
	c.all++ // this node
	c.clock(0, s.clock, 1)
	if len(s.ahead) > 0 {
		c = s.countClocks()
	}
	if median := (c.all - 1) / 2; median < c.earlier || median >= c.earlier+c.equal {
		s.clock = slices.Sorted(s.clocks)[median]
		s.census.earlier, s.census.equal = 0, 0
		for _, v := range s.vitals {
			if v != s.self.vitals {
				s.census.clock(v.clock, s.clock, 1)
			}
		}
	}
}

// countClocks counts all known clocks.
func (s *Set) countClocks() (c census) {
	for clock := range s.clocks {
		c.all++
		c.clock(clock, s.clock, 1)
	}
	return c
}

// clocks yields all known clocks, relative to this node's, which comes first.
func (s *Set) clocks(yield func(time.Duration) bool) {
	if !yield(0) {
		return
	}
	for _, a := range s.ahead {
		if !yield(a.clock) {
			return
		}
	}
	for i, v := range s.vitals {
		if v == s.self.vitals || (len(s.ahead) > 0 && s.isAhead(s.order[i])) {
			continue
		}
		if !yield(v.clock) {
			return
		}
	}
}

func (s *Set) isAhead(h Handle) bool {
	_, ahead := s.ahead[h]
	return ahead
}
