package cluster

import "time"

// countDrift keeps count of how often, and for how long, a node that has a table
// saw others run another one.
func (l *loop) countDrift(now time.Time, s *Snapshot) {
	drifting, did := s.Table != nil && s.drift > 0, !l.drifting.IsZero()
	switch {
	case drifting && !did:
		l.stats.Drifts++
	case did && s.Table != nil: // else it stood still, and knows nothing of meanwhile
		l.stats.DriftTime += now.Sub(l.drifting)
	}
	l.drifting = time.Time{}
	if drifting {
		l.drifting = now
	}
}
