package lease

import (
	"slices"
	"time"
)

// Expire ends the leases that are older than the TTL, forgets the leases that ended
// long ago, and reports whether the live set changed. O(nodes).
func (s *Set) Expire(now time.Time) (changed bool) {
	present := s.time.at(now)
	for i, v := range slices.Backward(s.vitals) {
		if v != s.self.vitals && millis(present-v.renewed()) > s.params.TTL {
			s.end(now, s.live[i], expired)
			s.stats.Expired++
			changed = true
		}
	}
	var e Effect
	s.confirmFailures(now, &e)
	changed = changed || e.Changed
	s.forgetEnded(now)
	s.gather()
	for h, at := range s.requested {
		if now.Sub(at) > requestInterval {
			delete(s.requested, h)
		}
	}
	for id, d := range s.differs {
		if now.Sub(d.seen) > s.params.TTL {
			delete(s.differs, id)
		}
	}
	s.challenges.forget(now, s.params.TTL)
	s.oldest = 0
	changed = s.endCordons(now) || changed
	return s.outbid(now) || changed
}

// forgetEnded forgets the leases that ended long ago: O(1) if all are live, otherwise O(known).
// Once the latest incarnation of a node is forgotten, the earlier ones may be live again: a
// node that still sends could not take a later incarnation.
func (s *Set) forgetEnded(now time.Time) {
	if len(s.known) == len(s.live) {
		return
	}
	forgotten := make(map[NodeID]bool) // with their latest incarnation
	for h, e := range s.known {
		if e.status != live && s.since(now)-e.ended > s.params.forgetAfter() {
			delete(s.known, h)
			if s.latest(e.rec.ID) == e {
				forgotten[e.rec.ID] = true
			}
		}
	}
	if len(forgotten) == 0 {
		return
	}
	s.nodes, s.place = slices.DeleteFunc(s.nodes, func(e *entry) bool { return forgotten[e.rec.ID] }), -1
	for _, earlier := range s.known {
		if forgotten[earlier.rec.ID] && earlier.status == retired && !earlier.left() {
			s.become(earlier, pending)
		}
	}
}

// NextDeadline returns an instant before which Expire cannot change the live set unless a
// message comes first, and whether there is one. O(nodes) after a lease began or Expire,
// otherwise O(1): a renewal only moves a deadline back.
func (s *Set) NextDeadline() (at time.Time, ok bool) {
	if s.oldest == 0 {
		s.oldest = s.findOldest()
	}
	if s.oldest != 0 {
		at, ok = s.time.local(s.oldest), true
	}
	if r := s.duplicate; r.entry != nil && (!ok || r.since.Before(at)) {
		at, ok = r.since, true // Expire will outbid it
	}
	return s.nextCordon(at.Add(s.params.TTL+time.Millisecond), ok)
}

// findOldest returns when the oldest lease of another node was renewed, or 0: O(nodes).
func (s *Set) findOldest() (oldest Stamp) {
	for _, v := range s.vitals {
		if v != s.self.vitals && (oldest == 0 || v.renewed() < oldest) {
			oldest = v.renewed()
		}
	}
	return oldest
}

// OldestAge returns the age of the oldest live lease of another node, 0 if there is none:
// O(nodes).
func (s *Set) OldestAge(now time.Time) time.Duration {
	if oldest := s.findOldest(); oldest != 0 {
		return millis(s.time.at(now) - oldest)
	}
	return 0
}

// ExpireOthers ends every lease except this node's: O(nodes). After a pause of this process
// for longer than the TTL, all that it knows is out of date. The latest known heartbeat of a node
// counts again if another node relays it, for as long as it holds there: the lease ended
// because of a pause of this node, not of its own.
func (s *Set) ExpireOthers(now time.Time) {
	forgotten := 2*s.tick() + 1 // see revives
	for _, e := range s.nodes {
		if e.status == live && e != s.self {
			s.end(now, e, expired)
			e.at, e.grace = e.at-forgotten, e.grace+forgotten
		}
	}
}
