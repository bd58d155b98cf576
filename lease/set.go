package lease

import (
	"time"
)

// Params are the settings of a Set. All nodes of a cluster share them.
type Params struct {
	TTL      time.Duration // a lease is live while its age ≤ TTL
	MaxSkew  time.Duration // how far ahead of the cluster's clock a node's clock may be
	Settings uint32        // messages with another hash are refused
}

// forgetAfter is how long a Set remembers a lease that is over, so that old
// news of it stays old.
func (p Params) forgetAfter() time.Duration { return max(time.Minute, 10*p.TTL) }

// Stats counts what a Set did since it was made.
type Stats struct {
	BeatsApplied    uint64 `json:"beats_applied"`    // renewed or began a lease
	BeatsStale      uint64 `json:"beats_stale"`      // known already, or older than the TTL
	SkewRejected    uint64 `json:"skew_rejected"`    // stamped too far ahead
	SettingsRefused uint64 `json:"settings_refused"` // messages from a cluster with other settings
	RecordsRefused  uint64 `json:"records_refused"`  // no room: MaxNodes are known
	Expired         uint64 `json:"expired"`          // leases that ran out
	Reincarnations  uint64 `json:"reincarnations"`   // stale news about this node refuted
}

// Effect tells the caller of [Set.Apply] what came of a message.
type Effect struct {
	Changed   bool     // the live set, or the record of a live node, is another now
	Urgent    bool     // pass it on now rather than with the next digest
	Wants     []Handle // ask the message's sender for these records
	Duplicate *Record  // a later process lives under this node's id: stop
}

// Set is one node's knowledge of all leases. It is a pure state machine: it
// reads no clock and does no I/O. It is not safe for concurrent use.
//
// Every time.Time argument carries the caller's monotonic clock, which alone
// decides how old a lease is, and its wall clock, which serves to judge skew.
type Set struct {
	params Params
	self   *entry
	byID   map[NodeID]*entry // the latest incarnation that had a lease
	known  map[Handle]*entry // these, and incarnations without a lease (yet, or any more)
	asked  map[Handle]time.Time
	ahead  map[Handle]stamp // whose stamps were rejected
	rival  rival
	clock  time.Duration // the cluster's clock minus ours, see clock.go
	stats  Stats
	rows   []*entry // scratch of Compose
}

// entry is what a Set knows of one incarnation of a node.
type entry struct {
	rec    *Record
	handle Handle
	status status
	seq    uint32
	table  uint32
	load   int64
	clock  time.Duration // the node's wall clock minus ours
	born   time.Time     // when the latest beat was sent, by our clock; before any beat, when we met
	beats  int           // copies of the latest beat that we sent
	copies int           // copies of the record that we sent
	size   int           // of the encoded record, 0 = not known yet
}

type status uint8

const (
	pending status = iota // a record without a beat
	live
	expired // the lease ran out; a newer beat revives it
	retired // farewell, or superseded by a later incarnation: for good
)

// NewSet returns a set that holds only self, whose first lease begins at now.
func NewSet(now time.Time, self Record, p Params) *Set {
	s := &Set{
		params: p,
		byID:   make(map[NodeID]*entry),
		known:  make(map[Handle]*entry),
		asked:  make(map[Handle]time.Time),
		ahead:  make(map[Handle]stamp),
	}
	rec := self.clone()
	rec.Version = max(1, rec.Version)
	s.admit(now, rec)
	return s
}

// admit makes rec the record of this node and begins a lease under it.
func (s *Set) admit(now time.Time, rec *Record) {
	var table uint32
	var load int64
	if s.self != nil {
		table, load = s.self.table, s.self.load
	}
	s.self = &entry{
		rec: rec, handle: HandleOf(rec.ID, rec.Incarnation), status: live,
		seq: 1, table: table, load: load, born: now,
	}
	s.byID[rec.ID] = s.self
	s.known[s.self.handle] = s.self
}

// Self returns the record of this node.
func (s *Set) Self() *Record { return s.self.rec }

// Handle returns the handle of this node's present incarnation.
func (s *Set) Handle() Handle { return s.self.handle }

// Stats returns the counters.
func (s *Set) Stats() Stats { return s.stats }

// Beat renews this node's own lease and reports whether that changed anything
// that others see of it beyond the lease.
func (s *Set) Beat(now time.Time, load int64, table uint32) {
	s.self.seq++
	s.self.born = now
	s.self.load = max(0, load)
	s.self.table = table
	s.self.beats = 0
	s.judgeClock(now)
}

// Update changes this node's record. The caller beats next, which tells others.
// The identity of the record stays what it is.
func (s *Set) Update(change func(*Record)) {
	rec := s.self.rec.clone()
	change(rec)
	rec.ID, rec.Incarnation, rec.Version = s.self.rec.ID, s.self.rec.Incarnation, s.self.rec.Version+1
	s.self.rec = rec
	s.self.copies, s.self.size = 0, 0
}

// Apply merges a message: O(its size). Applying is commutative and idempotent,
// apart from relaying: the order in which news arrives, and how often, decides
// nothing.
func (s *Set) Apply(now time.Time, m *Message) Effect {
	var e Effect
	if m.Settings != s.params.Settings {
		s.stats.SettingsRefused++
		return e
	}
	for _, r := range m.Records {
		s.applyRecord(now, r, &e)
	}
	lag := m.SentAt.Sub(time.UnixMilli(now.UnixMilli()))
	for i := range m.Beats {
		s.applyBeat(now, m.From, lag, &m.Beats[i], &e)
	}
	if e.Changed {
		s.judgeClock(now)
	}
	return e
}

func (s *Set) applyRecord(now time.Time, r *Record, e *Effect) {
	if r.ID == s.self.rec.ID {
		s.hearOfSelf(now, r)
		return
	}
	handle := HandleOf(r.ID, r.Incarnation)
	old := s.known[handle]
	if old == nil {
		cur := s.byID[r.ID]
		over := r.State == Left || (cur != nil && cur.rec.Incarnation > r.Incarnation)
		s.meet(now, handle, r, over)
		return
	}
	if old.status == retired || old.rec.ID != r.ID || !r.newer(old.rec) {
		return
	}
	old.rec, old.copies, old.size = r, 0, 0
	delete(s.asked, handle)
	if r.State == Left {
		e.Changed = e.Changed || old.status == live
		e.Urgent = e.Urgent || old.status == live
		old.status, old.born = retired, now
	} else if old.status == live {
		e.Changed, e.Urgent = true, true
	}
}

// meet notes an incarnation that was not known, and whether it is over already.
func (s *Set) meet(now time.Time, h Handle, r *Record, over bool) *entry {
	if len(s.known) >= 2*MaxNodes {
		s.stats.RecordsRefused++
		return nil
	}
	e := &entry{rec: r, handle: h, status: pending, born: now}
	if over {
		e.status = retired
	}
	s.known[h] = e
	delete(s.asked, h)
	return e
}

func (s *Set) applyBeat(now time.Time, from Handle, lag time.Duration, b *Beat, e *Effect) {
	if b.Handle == s.self.handle {
		s.hearOwnBeat(now, b)
		return
	}
	if b.Age > s.params.TTL {
		s.stats.BeatsStale++
		return
	}
	known := s.known[b.Handle]
	if known != nil && known == s.rival.entry {
		s.hearRival(now, b, e)
		return
	}
	if known != nil && (known.status == retired || (known.status != pending && b.Seq <= known.seq)) {
		if known.status == live && b.Seq == known.seq {
			known.born = earlier(known.born, now.Add(-b.Age))
		}
		s.stats.BeatsStale++
		return
	}
	if clock := b.Clock + lag; s.tooFarAhead(now, b.Handle, clock) {
		s.stats.SkewRejected++
		return
	}
	if known == nil || b.Version > known.rec.Version {
		s.want(now, from, b.Handle, e)
	}
	if known != nil {
		s.renew(now, lag, known, b, e)
	}
}

// renew gives known the lease that b stands for.
func (s *Set) renew(now time.Time, lag time.Duration, known *entry, b *Beat, e *Effect) {
	if cur := s.byID[known.rec.ID]; cur != nil && cur != known {
		if cur.rec.Incarnation > known.rec.Incarnation {
			known.status, known.born = retired, now
			return
		}
		cur.status, cur.born = retired, now
	} else if cur == nil && len(s.byID) >= MaxNodes {
		s.stats.RecordsRefused++
		return
	}
	if known.status != live {
		e.Changed, e.Urgent = true, true
		known.copies = 0
	}
	s.byID[known.rec.ID] = known
	known.status = live
	known.seq, known.table, known.load = b.Seq, b.Table, b.Load
	known.clock = b.Clock + lag
	known.born = now.Add(-b.Age)
	known.beats = 0
	s.stats.BeatsApplied++
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// askAgainAfter spaces the requests for one record.
const askAgainAfter = 500 * time.Millisecond

// want notes that the record of h is missing, and has the sender asked for it
// unless somebody was asked just now. Only a live sender is asked: anybody can
// put a handle into a message.
func (s *Set) want(now time.Time, from, h Handle, e *Effect) {
	if at, ok := s.asked[h]; (ok && now.Sub(at) < askAgainAfter) || s.AddrOf(from) == "" {
		return
	}
	if len(s.asked) >= MaxNodes {
		return // Expire makes room
	}
	s.asked[h] = now
	e.Wants = append(e.Wants, h)
}

// Expire ends the leases that are older than the TTL, forgets what is long
// over, and reports whether the live set changed. O(nodes).
func (s *Set) Expire(now time.Time) (changed bool) {
	for h, e := range s.known {
		if e == s.self {
			continue
		}
		over := now.Sub(e.born)
		if e.status == live && over > s.params.TTL {
			e.status = expired
			s.stats.Expired++
			changed = true
		}
		if e.status != live && over > s.params.forgetAfter() {
			delete(s.known, h)
			if s.byID[e.rec.ID] == e {
				delete(s.byID, e.rec.ID)
			}
		}
	}
	for h, at := range s.asked {
		if now.Sub(at) > askAgainAfter {
			delete(s.asked, h)
		}
	}
	s.refute(now)
	return changed
}

// NextDeadline returns the first instant at which Expire will change the live
// set, if nothing renews a lease before, and whether there is one. O(nodes).
func (s *Set) NextDeadline() (at time.Time, ok bool) {
	for _, e := range s.byID {
		if e.status == live && e != s.self && (!ok || e.born.Before(at)) {
			at, ok = e.born, true
		}
	}
	return at.Add(s.params.TTL + 1), ok
}

// Suspend ends every lease but the own one: what this node knew is out of date
// because it was stopped for longer than the TTL. Only beats newer than those
// it knew bring a node back.
func (s *Set) Suspend(now time.Time) {
	for _, e := range s.byID {
		if e.status == live && e != s.self {
			e.status, e.born = expired, now
		}
	}
}
