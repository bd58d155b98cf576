package lease

import "time"

// rival is another process that seems to run under this node's id with a later
// incarnation. If its beats go on, it lives, and this node has to stop. If they
// do not, it is this node's own past under a clock that has been set back
// since, and is refuted by taking a still later incarnation.
type duplicate struct {
	entry *entry // nil = none
	since time.Time
}

// applyOwnRecord handles a record under this node's id that came from outside.
func (s *Set) applyOwnRecord(now time.Time, r *Record) {
	handle := HandleOf(r.ID, r.Incarnation)
	known := s.known[handle]
	met := known == nil
	if met {
		if known = s.addEntry(now, handle, r); known == nil {
			return
		}
	}
	switch {
	case known == s.self:
	case r.Incarnation < s.self.rec.Incarnation:
		known.status = retired
	case met && (s.duplicate.entry == nil || r.Incarnation > s.duplicate.entry.rec.Incarnation):
		s.dropDuplicate()
		s.duplicate = duplicate{entry: known, since: now}
	case met:
		known.status = retired
	}
}

// applyDuplicateBeat handles a beat of the rival. One that was sent after we first heard
// of it proves that it lives; the margin allows for the time that older beats
// were under way. Whoever heard its farewell takes us for a life before it: it
// has to be outbid.
func (s *Set) applyDuplicateBeat(now time.Time, b *Beat, e *Effect) {
	if b.State == Left {
		past := s.duplicate.entry.rec.Incarnation
		s.dropDuplicate()
		s.reincarnate(now, past, e)
		return
	}
	s.duplicate.entry.renewed = now
	if sent := now.Add(-b.Age); sent.Sub(s.duplicate.since) > s.params.TTL/8 {
		e.Duplicate = s.duplicate.entry.rec
	}
}

// applyOwnBeat handles a beat under this node's own handle. One that this node
// has not sent yet, or a farewell that it did not say, comes from a copy of this
// very process (a cloned machine): a new incarnation makes the two
// distinguishable, and the rule above applies.
func (s *Set) applyOwnBeat(now time.Time, b *Beat, e *Effect) {
	if b.Seq > s.self.seq || (b.State == Left && s.self.state != Left) {
		s.reincarnate(now, s.self.rec.Incarnation, e)
	}
}

// refute outbids a rival that showed no sign of life for as long as a lease
// lasts, and reports whether it did.
func (s *Set) refute(now time.Time) bool {
	r := s.duplicate
	if r.entry == nil || now.Sub(r.since) <= s.params.TTL {
		return false
	}
	s.dropDuplicate()
	s.reincarnate(now, r.entry.rec.Incarnation, &Effect{})
	return true
}

// reincarnate gives this node an incarnation later than past.
func (s *Set) reincarnate(now time.Time, past uint64, e *Effect) {
	s.self.status, s.self.renewed = retired, now
	rec := s.self.rec.clone()
	rec.Incarnation = max(past+1, uint64(max(0, now.UnixNano())))
	rec.Version++
	s.admit(now, rec)
	s.stats.Reincarnations++
	e.Changed, e.Urgent = true, true
	if r := s.duplicate.entry; r != nil && r.rec.Incarnation < rec.Incarnation {
		s.dropDuplicate()
	}
}

func (s *Set) dropDuplicate() {
	if s.duplicate.entry != nil {
		s.duplicate.entry.status = retired
	}
	s.duplicate = duplicate{}
}
