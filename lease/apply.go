package lease

import (
	"bytes"
	"time"
)

// Effect is the result of [Set.Apply].
type Effect struct {
	Counts      bool           // the message is of this cluster and of the present
	Changed     bool           // of the live set, or of the record or state of a live node
	Urgent      bool           // relay now rather than in the next round of gossip
	PullRecords []Handle       // pull these records from the message's sender
	PullBuckets []BucketDigest // pull from the message's sender what this node lacks
	Cordons     bool           // pull from the message's sender the cordons that this node lacks: [Set.CordonsFor]
	Refute      time.Time      // others report that this node has ended: send a heartbeat then; zero = they do not
	Duplicate   *Record        // another process runs under this node's id with this later incarnation: stop

	Challenge string // apply the message again when [Set.Challenge], sent to this address, was answered; empty = no
	Echo      string // send [Set.Echo] with the message's nonce to this address, unless empty
	Answered  bool   // the message answers this node's challenge: the sender runs
	Arrives   bool   // the same, or to a newcomer's stream: packets arrive at this node's address
	BothWays  bool   // it answers a packet: packets arrive both ways
	OfMember  bool   // it answers [Set.Question]
	Overdue   bool   // this node's lease may have ended for others long ago: ask members with [Set.Question]
	Suspended bool   // it has ended: this process was suspended, and its clock stood still
	Behind    bool   // the sender's cluster time is behind: [Set.AnswerExpired] tells it the time
}

// Apply merges a message: O(its size). Apart from relaying, Apply is commutative and
// idempotent. Apply drops two kinds of news instead of storing them: the heartbeat of a
// node without a record, and a heartbeat too far ahead of the known clocks. Both arrive
// again with the node's next heartbeat. No heartbeat follows a leave message; a dropped leave message
// arrives again from nodes that relay it, or the lease expires.
func (s *Set) Apply(now time.Time, m *Message) Effect {
	var e Effect
	if m.Settings != s.params.Settings {
		s.stats.SettingsRefused++
		return e
	}
	e.Echo = s.EchoTo(m)
	if !s.accepts(now, m, &e) {
		return e
	}
	e.Counts = true
	s.missed = max(s.missed, min(m.Missed, m.Stamp))
	members := len(s.live)
	s.remember(now, m.From)
	for _, r := range m.Records {
		s.applyRecord(now, r, &e)
	}
	lag := inRange(m.SentAt.Sub(time.UnixMilli(now.UnixMilli())))
	s.noteClocks(now, lag, m.Heartbeats)
	s.applying = true
	for i := range m.Heartbeats {
		s.applyHeartbeat(now, m.From, lag, &m.Heartbeats[i], &e)
	}
	s.applying = false
	s.placeBegun()
	s.applyAges(now, m, &e)
	for _, a := range m.FailureReports {
		s.applyFailureReport(now, a, &e)
	}
	s.pullBack(now, m, &e)
	s.applyCordons(now, m, &e)
	if e.Changed {
		s.confirmFailures(now, &e)
	}
	if len(s.live) != members { // a state or record has no clock
		s.updateClusterClock(now)
	}
	return e
}

// remember keeps an ended lease in memory for as long as its node sends.
func (s *Set) remember(now time.Time, sender Handle) {
	if e := s.known[sender]; e != nil && e.status != live && !e.left() {
		e.ended = s.since(now)
	}
}

func (s *Set) applyRecord(now time.Time, r *Record, e *Effect) {
	if r.ID == s.self.rec.ID {
		_, known := s.known[r.Handle()]
		if s.applyOwnRecord(now, r); !known {
			s.meetFormer(r)
		}
		return
	}
	handle := r.Handle()
	known := s.known[handle]
	switch {
	case known == nil:
		if known = s.addEntry(now, handle, r); known == nil {
			return
		}
	case known.status == retired || known.rec.ID != r.ID || !r.newer(known.rec):
		return
	default:
		s.tally(known, -1)
		known.rec, known.size = r, 0
		s.tally(known, 1)
		s.drains.plan(r)
		s.recordNews(known)
		s.rowNews(known, true)
		delete(s.requested, handle)
		if known.status == live {
			s.differsIn(known)
			e.Changed, e.Urgent, s.lost = true, true, true
		}
	}
	if s.superseded(r) {
		s.end(now, known, retired)
	}
}

// superseded reports whether a later incarnation of the node has or had a lease.
func (s *Set) superseded(r *Record) bool {
	cur := s.latest(r.ID)
	return cur != nil && cur.rec.Incarnation > r.Incarnation
}

// addEntry adds an incarnation that is not known yet.
func (s *Set) addEntry(now time.Time, h Handle, r *Record) *entry {
	if len(s.known) >= 2*MaxNodes {
		s.stats.RecordsRefused++
		return nil
	}
	e := &entry{vitals: &vitals{status: pending}, rec: r, handle: h, ended: s.since(now)}
	s.known[h] = e
	s.drains.plan(r)
	delete(s.requested, h)
	return e
}

// replaceEarlier makes known the latest incarnation of its node and retires the
// earlier one. It returns false if a later one had a lease, or if MaxNodes is reached.
func (s *Set) replaceEarlier(now time.Time, known *entry, e *Effect) bool {
	if known.status == live {
		return true
	}
	cur := s.latest(known.rec.ID)
	switch {
	case cur == known:
	case cur == nil:
		if len(s.nodes) >= MaxNodes {
			s.stats.RecordsRefused++
			return false
		}
	case s.superseded(known.rec):
		s.end(now, known, retired)
		return false
	default:
		if cur.status == live {
			e.Changed, e.Urgent = true, true
		}
		s.end(now, cur, retired)
	}
	if cur != known {
		s.putNode(known)
	}
	return true
}

func (s *Set) applyHeartbeat(now time.Time, from Handle, lag time.Duration, b *Heartbeat, e *Effect) {
	known := s.known[b.Handle]
	s.noteLeave(known, b)
	switch clock := inRange(b.Clock + lag); {
	case known == s.self:
		s.applyOwnHeartbeat(now, b, e)
	case s.stale(now, known, b):
		s.stats.HeartbeatsStale++
		s.applyStaleHeartbeat(now, from, known, b, e)
	case s.tooFarAhead(clock):
		s.stats.SkewRejected++
	case known == nil:
		if b.State != Left { // the leave message of an unknown node ends nothing
			s.pullRecord(now, from, b.Handle, e)
		}
	case known == s.duplicate.entry:
		s.applyDuplicateHeartbeat(now, b, e)
	case b.State == Left:
		s.applyLeave(now, clock, known, b, e)
	default:
		if b.Version > known.rec.Version {
			s.pullRecord(now, from, b.Handle, e)
		}
		s.renew(now, clock, known, b, e)
	}
}

// stale reports whether b, a heartbeat of known, carries no news: it is too old, or its content is
// known. A leave message is valid at any age, and worth storing for as long as ended leases are
// remembered. A node that is not known is nil.
func (s *Set) stale(now time.Time, known *entry, b *Heartbeat) bool {
	limit := s.params.TTL
	if b.State == Left {
		limit = s.params.forgetAfter()
	}
	switch {
	case millis(s.time.at(now)-b.renewed()) > limit:
		return true
	case known == nil || known.status == pending:
		return false
	default:
		return known.status == retired || (!known.precedes(b) && b.renewed() <= known.at)
	}
}

// precedes reports whether b is later than the node's latest whole heartbeat.
func (e *entry) precedes(b *Heartbeat) bool {
	return b.At > e.rowAt || (b.At == e.rowAt && b.State > e.state)
}

// applyStaleHeartbeat handles a heartbeat without news. It may still refer to a newer record.
func (s *Set) applyStaleHeartbeat(now time.Time, from Handle, known *entry, b *Heartbeat, e *Effect) {
	if known != nil && known.status == live && b.Version > known.rec.Version {
		s.pullRecord(now, from, b.Handle, e)
	}
}

// renew renews the lease of known by b.
func (s *Set) renew(now time.Time, clock time.Duration, known *entry, b *Heartbeat, e *Effect) {
	was := known.state
	if !s.revivesReported(known, b.renewed()) {
		if known.precedes(b) {
			s.tally(known, -1)
			known.state, known.rowAt = b.State, b.At
			s.tally(known, 1)
		}
		return
	}
	if !s.replaceEarlier(now, known, e) {
		return
	}
	s.update(known, b, clock)
	if known.status != live {
		if known.status == expired {
			s.revived++
			if b.State != Settling {
				s.reached++
			}
		}
		s.recordNews(known)
		s.rowNews(known, true)
		s.oldest = 0
	}
	if known.status != live || known.state != was {
		e.Changed, e.Urgent = true, true
		s.lost = s.lost || was == Active || was == Draining
	}
	s.become(known, live)
	known.crashed = false
	s.stats.HeartbeatsApplied++
}

// revives reports whether a heartbeat sent at the given time is news of an expired
// node. The latest heartbeat of a dead node reaches some nodes whole, and others as an
// age rounded down: it must not revive the node there.
func (s *Set) revives(known *entry, at Stamp) bool { return at-known.at > 2*s.tick() }

// applyLeave retires known and every earlier incarnation of its node, even if the
// leave message arrived before all other heartbeats of known, or MaxNodes is reached.
func (s *Set) applyLeave(now time.Time, clock time.Duration, known *entry, b *Heartbeat, e *Effect) {
	if known.status == live {
		e.Changed, e.Urgent = true, true
	}
	s.replaceEarlier(now, known, e)
	s.update(known, b, clock)
	s.rowNews(known, false)
	s.end(s.time.local(b.renewed()), known, retired)
}

// update stores b as the latest whole heartbeat of e. What it says of the node is relayed if
// it is new. In a large set, tables travel with the ages alone: all nodes have a new one
// at the same time.
func (s *Set) update(e *entry, b *Heartbeat, clock time.Duration) {
	if e.precedes(b) {
		switch {
		case b.Load != e.load, !bytes.Equal(b.rest, e.rest()), b.Table != e.table && s.tablesInRows():
			s.rowNews(e, false)
		case b.State != e.state:
			s.rowNews(e, true)
		}
		if b.State != e.state {
			s.differsIn(e)
		}
		if int(e.rowsSent) < s.rowCopies() {
			s.spread.noRows = false
		}
		s.tally(e, -1)
		e.rowAt, e.state, e.table, e.load = b.At, b.State, b.Table, b.Load
		e.setRest(b.rest)
		e.clock = clock
		s.tally(e, 1)
	}
	e.heard(b.renewed())
}

// heard notes that the node sent a heartbeat at the given time, and reports whether that is
// news.
func (v *vitals) heard(at Stamp) bool {
	if at <= v.at {
		return false
	}
	v.grace = max(0, v.renewed()-at)
	v.at, v.agesSent = at, 0
	return true
}

// requestInterval is the minimum time between two requests for one record.
const requestInterval = 500 * time.Millisecond

// pullRecord pulls the record of h from the sender, unless it was pulled just now. The
// sender must be live: any process can put a handle into a message.
func (s *Set) pullRecord(now time.Time, from, h Handle, e *Effect) {
	if at, ok := s.requested[h]; (ok && now.Sub(at) < requestInterval) || s.AddrOf(from) == "" {
		return
	}
	if len(s.requested) >= MaxNodes {
		return // Expire makes room again
	}
	s.requested[h] = now
	e.PullRecords = append(e.PullRecords, h)
}
