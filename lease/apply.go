package lease

import "time"

// Effect is the result of [Set.Apply].
type Effect struct {
	Changed   bool     // of the live set, or of the record or state of a live node
	Urgent    bool     // relay now rather than in the next digest
	Wants     []Handle // request these records from the message's sender
	Duplicate *Record  // another process runs under this node's id with this later incarnation: stop
}

// Apply merges a message: O(its size). Apart from relaying, Apply is commutative and
// idempotent. Apply drops two kinds of news instead of storing them: the beat of a
// node without a record, and a beat too far ahead of the known clocks. Both arrive
// again with the node's next beat. No beat follows a farewell; a dropped farewell
// arrives again from nodes that relay it, or the lease expires.
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
		known.rec, known.recordsSent, known.size = r, 0, 0
		delete(s.requested, handle)
		if known.status == live {
			e.Changed, e.Urgent = true, true
		}
	}
	if s.superseded(r) {
		known.status, known.renewed = retired, now
	}
}

// superseded reports whether a later incarnation of the node has or had a lease.
func (s *Set) superseded(r *Record) bool {
	cur := s.byID[r.ID]
	return cur != nil && cur.rec.Incarnation > r.Incarnation
}

// addEntry adds an incarnation that is not known yet.
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

// replaceEarlier makes known the latest incarnation of its node and retires the
// earlier one. It returns false if a later one had a lease, or if MaxNodes is reached.
func (s *Set) replaceEarlier(now time.Time, known *entry, e *Effect) bool {
	cur := s.byID[known.rec.ID]
	switch {
	case cur == known:
	case cur == nil:
		if len(s.nodes) >= MaxNodes {
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
	if cur != known {
		s.putNode(known)
	}
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
		if b.State != Left { // the farewell of an unknown node ends nothing
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

// stale reports whether b carries no news: it is too old, or its content is known. A
// farewell is valid at any age, and worth storing for as long as ended leases are
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

// applyStaleBeat handles a beat without news. It may still have arrived on a faster
// path than the known copy, or refer to a newer record.
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

// renew renews the lease of known by b.
func (s *Set) renew(now time.Time, clock time.Duration, known *entry, b *Beat, e *Effect) {
	renewed := now.Add(-b.Age)
	if known.status != pending && b.Seq == known.seq { // one beat with two states renews nothing
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
		known.recordsSent = 0
	}
	if known.status != live || known.state != b.State {
		e.Changed, e.Urgent = true, true
	}
	known.status = live
	known.update(b, clock, renewed)
	s.stats.BeatsApplied++
}

// applyFarewell retires known and every earlier incarnation of its node, even if the
// farewell arrived before all other beats of known, or MaxNodes is reached.
func (s *Set) applyFarewell(now time.Time, clock time.Duration, known *entry, b *Beat, e *Effect) {
	if known.status == live {
		e.Changed, e.Urgent = true, true
	}
	s.replaceEarlier(now, known, e)
	known.status = retired
	known.update(b, clock, now.Add(-b.Age))
}

// update stores b as the latest beat, which is then relayed.
func (e *entry) update(b *Beat, clock time.Duration, renewed time.Time) {
	e.seq, e.state, e.table, e.load = b.Seq, b.State, b.Table, b.Load
	e.clock, e.renewed, e.beatsSent = clock, renewed, 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// requestInterval is the minimum time between two requests for one record.
const requestInterval = 500 * time.Millisecond

// want requests the record of h from the sender, unless it was requested just now. The
// sender must be live: any process can put a handle into a message.
func (s *Set) want(now time.Time, from, h Handle, e *Effect) {
	if at, ok := s.requested[h]; (ok && now.Sub(at) < requestInterval) || s.AddrOf(from) == "" {
		return
	}
	if len(s.requested) >= MaxNodes {
		return // Expire makes room again
	}
	s.requested[h] = now
	e.Wants = append(e.Wants, h)
}
