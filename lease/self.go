package lease

import "time"

// duplicate is a later incarnation of this node's id that this process did not
// take. If its heartbeats continue, another process is running under the id, and this
// one has to stop. If they do not, it was an earlier process of this node, before
// the clock was set back, and this process takes an incarnation that is later still.
type duplicate struct {
	entry *entry // nil = none
	since time.Time
}

// SuspectedDuplicate returns the record of a later incarnation of this node's id while it is
// unknown whether that process runs; nil = there is none. If the process runs,
// [Effect.Duplicate] says so after its next heartbeats. If it is silent for a TTL, this node
// takes an incarnation that is later still.
func (s *Set) SuspectedDuplicate() *Record {
	if s.duplicate.entry == nil {
		return nil
	}
	return s.duplicate.entry.rec
}

// applyOwnRecord handles a received record under this node's id.
func (s *Set) applyOwnRecord(now time.Time, r *Record) {
	handle := r.Handle()
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
		s.become(known, retired)
	case met && (s.duplicate.entry == nil || r.Incarnation > s.duplicate.entry.rec.Incarnation):
		s.dropDuplicate()
		s.duplicate = duplicate{entry: known, since: now}
	case met:
		s.become(known, retired)
	}
}

// applyDuplicateHeartbeat handles a heartbeat of the duplicate. A heartbeat that was sent after the
// duplicate was first seen shows that the duplicate runs; the margin covers the
// transit time of older heartbeats. After a leave message of the duplicate, nodes that
// received it reject this earlier incarnation, so this node takes a later one.
func (s *Set) applyDuplicateHeartbeat(now time.Time, b *Heartbeat, e *Effect) {
	if b.State == Left {
		past := s.duplicate.entry.rec.Incarnation
		s.dropDuplicate()
		s.reincarnate(now, past, e)
		return
	}
	s.duplicate.entry.ended = s.since(now)
	if sent := s.time.local(b.At); sent.Sub(s.duplicate.since) > s.params.TTL/8 {
		e.Duplicate = s.duplicate.entry.rec
	}
}

// applyOwnHeartbeat handles a heartbeat under this node's own handle. A heartbeat later than its own, a leave
// message that it did not send, or a version that its record does not have, comes from a copy of this process
// (a cloned machine). A new incarnation makes the two distinguishable; then applyDuplicateHeartbeat decides.
// The margin covers a step of cluster time that others took first. After a step back, heartbeats from before
// it come back by way of others: they are no later than claimed.
func (s *Set) applyOwnHeartbeat(now time.Time, b *Heartbeat, e *Effect) {
	s.shown = max(s.shown, min(b.renewed(), s.self.at))
	later := millis(b.At-max(s.self.at, s.claimed)) > s.params.TTL/8 || b.Version > s.self.rec.Version
	if later || (b.State == Left && s.self.state != Left) {
		s.reincarnate(now, s.self.rec.Incarnation, e)
	}
}

// outbid takes a later incarnation than a duplicate that sent no heartbeat for a TTL, and
// reports whether it did.
func (s *Set) outbid(now time.Time) bool {
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
	s.end(now, s.self, retired)
	rec := s.self.rec.clone()
	rec.Incarnation = uint64(max(0, now.UnixNano()))
	if past < maxIncarnation { // otherwise none is later: let the other one be forgotten
		rec.Incarnation = max(past+1, min(rec.Incarnation, maxIncarnation))
	}
	rec.Version++
	s.claimed = 0
	s.admit(now, rec)
	s.stats.Reincarnations++
	e.Changed, e.Urgent = true, true
	if r := s.duplicate.entry; r != nil && r.rec.Incarnation < rec.Incarnation {
		s.dropDuplicate()
	}
}

func (s *Set) dropDuplicate() {
	if s.duplicate.entry != nil {
		s.become(s.duplicate.entry, retired)
	}
	s.duplicate = duplicate{}
}
