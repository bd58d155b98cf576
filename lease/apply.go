package lease

import "time"

// Effect tells the caller of [Set.Apply] what came of a message.
type Effect struct {
	Changed   bool     // the live set, or the record or state of a live node, is another now
	Urgent    bool     // pass it on now rather than with the next digest
	Wants     []Handle // ask the message's sender for these records
	Duplicate *Record  // a later process lives under this node's id: stop
}

// Apply merges a message: O(its size). Applying is commutative and idempotent,
// apart from relaying: the order in which news arrives, and how often, decides
// nothing. Two kinds of news are dropped rather than kept until they make sense,
// and come again with the next beat: the beat of a node whose record is missing,
// and a beat that is too far ahead of the clocks heard so far. Where that was a
// farewell, which no beat follows, it comes again from those who pass it on, or
// the lease runs out.
func (s *Set) Apply(now time.Time, m *Message) Effect {
	var e Effect
	if m.Settings != s.params.Settings {
		s.stats.SettingsRefused++
		return e
	}
	for _, r := range m.Records {
		s.applyRecord(now, r, &e)
	}
	lag := inRange(m.SentAt.Sub(time.UnixMilli(now.UnixMilli())))
	s.noteClocks(now, lag, m.Beats)
	for i := range m.Beats {
		s.applyBeat(now, m.From, lag, &m.Beats[i], &e)
	}
	if e.Changed {
		s.updateClusterClock(now)
	}
	return e
}

func (s *Set) applyRecord(now time.Time, r *Record, e *Effect) {
	if r.ID == s.self.rec.ID {
		s.applyOwnRecord(now, r)
		return
	}
	handle := HandleOf(r.ID, r.Incarnation)
	known := s.known[handle]
	switch {
	case known == nil:
		if known = s.addEntry(now, handle, r); known == nil {
			return
		}
	case known.status == retired || known.rec.ID != r.ID || !r.newer(known.rec):
		return
	default:
		known.rec, known.copies, known.size = r, 0, 0
		delete(s.requested, handle)
		if known.status == live {
			e.Changed, e.Urgent = true, true
		}
	}
	if s.superseded(r) {
		known.status, known.renewed = retired, now
	}
}

// superseded reports whether a later life of the node had its lease.
func (s *Set) superseded(r *Record) bool {
	cur := s.byID[r.ID]
	return cur != nil && cur.rec.Incarnation > r.Incarnation
}

// meet notes an incarnation that was not known.
func (s *Set) addEntry(now time.Time, h Handle, r *Record) *entry {
	if len(s.known) >= 2*MaxNodes {
		s.stats.RecordsRefused++
		return nil
	}
	e := &entry{rec: r, handle: h, status: pending, renewed: now}
	s.known[h] = e
	delete(s.requested, h)
	return e
}

// succeed makes known the latest incarnation of its node and ends the earlier
// one. It returns false if a later one had its lease, or if there is no room.
func (s *Set) replaceEarlier(now time.Time, known *entry, e *Effect) bool {
	cur := s.byID[known.rec.ID]
	switch {
	case cur == known:
	case cur == nil:
		if len(s.byID) >= MaxNodes {
			s.stats.RecordsRefused++
			return false
		}
	case s.superseded(known.rec):
		known.status, known.renewed = retired, now
		return false
	default:
		if cur.status == live {
			e.Changed, e.Urgent = true, true
		}
		cur.status, cur.renewed = retired, now
	}
	s.byID[known.rec.ID] = known
	return true
}

func (s *Set) applyBeat(now time.Time, from Handle, lag time.Duration, b *Beat, e *Effect) {
	known := s.known[b.Handle]
	switch clock := inRange(b.Clock + lag); {
	case known == s.self:
		s.applyOwnBeat(now, b, e)
	case s.stale(b):
		s.stats.BeatsStale++
		s.applyStaleBeat(now, from, known, b, e)
	case s.tooFarAhead(clock):
		s.stats.SkewRejected++
	case known == nil:
		if b.State != Left { // of a node that was not known, there is nothing to end
			s.want(now, from, b.Handle, e)
		}
	case known == s.duplicate.entry:
		s.applyDuplicateBeat(now, b, e)
	case b.State == Left:
		s.applyFarewell(now, clock, known, b, e)
	default:
		if b.Version > known.rec.Version {
			s.want(now, from, b.Handle, e)
		}
		s.renew(now, clock, known, b, e)
	}
}

// stale reports whether b is no news: what it says is over, or known. A farewell
// is true at any age, and worth knowing for as long as ended leases are
// remembered.
func (s *Set) stale(b *Beat) bool {
	limit := s.params.TTL
	if b.State == Left {
		limit = s.params.forgetAfter()
	}
	known := s.known[b.Handle]
	switch {
	case b.Age > limit:
		return true
	case known == nil || known.status == pending:
		return false
	default:
		return known.status == retired || b.Seq < known.seq || (b.Seq == known.seq && b.State <= known.state)
	}
}

// applyStaleBeat handles a beat that is no news. That of a live node may still have
// come on a faster way, or from one who knows of a newer record.
func (s *Set) applyStaleBeat(now time.Time, from Handle, known *entry, b *Beat, e *Effect) {
	if known == nil || known.status != live || b.Age > s.params.TTL {
		return
	}
	if b.Seq == known.seq {
		known.renewed = earlier(known.renewed, now.Add(-b.Age))
	}
	if b.Version > known.rec.Version {
		s.want(now, from, b.Handle, e)
	}
}

// renew gives known the lease that b stands for.
func (s *Set) renew(now time.Time, clock time.Duration, known *entry, b *Beat, e *Effect) {
	renewed := now.Add(-b.Age)
	if known.status != pending && b.Seq == known.seq { // one beat, two states: that renews nothing
		if known.status == expired {
			known.state = b.State
			return
		}
		renewed = earlier(known.renewed, renewed)
	}
	if !s.replaceEarlier(now, known, e) {
		return
	}
	if known.status != live {
		known.copies = 0
	}
	if known.status != live || known.state != b.State {
		e.Changed, e.Urgent = true, true
	}
	known.status = live
	known.update(b, clock, renewed)
	s.stats.BeatsApplied++
}

// applyFarewell ends known for good, and with it every earlier life of its node,
// even if it overtook all other beats of known, or finds no room.
func (s *Set) applyFarewell(now time.Time, clock time.Duration, known *entry, b *Beat, e *Effect) {
	if known.status == live {
		e.Changed, e.Urgent = true, true
	}
	s.replaceEarlier(now, known, e)
	known.status = retired
	known.update(b, clock, now.Add(-b.Age))
}

// hear notes what b says. It is news, to be passed on.
func (e *entry) update(b *Beat, clock time.Duration, renewed time.Time) {
	e.seq, e.state, e.table, e.load = b.Seq, b.State, b.Table, b.Load
	e.clock, e.renewed, e.beats = clock, renewed, 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// requestInterval spaces the requests for one record.
const requestInterval = 500 * time.Millisecond

// want notes that the record of h is missing, and has the sender asked for it
// unless somebody was asked just now. Only a live sender is asked: anybody can
// put a handle into a message.
func (s *Set) want(now time.Time, from, h Handle, e *Effect) {
	if at, ok := s.requested[h]; (ok && now.Sub(at) < requestInterval) || s.AddrOf(from) == "" {
		return
	}
	if len(s.requested) >= MaxNodes {
		return // Expire makes room
	}
	s.requested[h] = now
	e.Wants = append(e.Wants, h)
}
