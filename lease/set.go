package lease

import "time"

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
	BeatsSent       uint64 `json:"beats_sent"`       // copies of this node's own
	BeatsRelayed    uint64 `json:"beats_relayed"`    // copies of others'
	BeatsApplied    uint64 `json:"beats_applied"`    // renewed or began a lease
	BeatsStale      uint64 `json:"beats_stale"`      // known already, or older than the TTL
	SkewRejected    uint64 `json:"skew_rejected"`    // stamped too far ahead
	SettingsRefused uint64 `json:"settings_refused"` // messages from a cluster with other settings
	RecordsRefused  uint64 `json:"records_refused"`  // no room: MaxNodes are known
	Expired         uint64 `json:"expired"`          // leases that ran out
	Reincarnations  uint64 `json:"reincarnations"`   // stale news about this node refuted
}

// Set is one node's knowledge of all leases. It is a pure state machine: it
// reads no clock and does no I/O. It is not safe for concurrent use.
//
// Every time.Time argument carries the caller's monotonic clock, which alone
// decides how old a lease is, and its wall clock, which serves to judge skew.
type Set struct {
	params    Params
	self      *entry
	state     State             // of this node, from its next beat on
	byID      map[NodeID]*entry // the latest incarnation that had a lease here
	known     map[Handle]*entry // these, and incarnations without a lease (yet, or any more)
	requested map[Handle]time.Time
	ahead     map[Handle]stamp // whose stamps were rejected
	duplicate duplicate
	clock     time.Duration // the cluster's clock minus ours, see clock.go
	stats     Stats
	rows      []*entry // scratch of Compose and Sync
}

// entry is what a Set knows of one incarnation of a node.
type entry struct {
	rec      *Record
	handle   Handle
	status   status
	state    State // by its latest beat; 0 before any
	seq      uint32
	table    uint32
	load     int64
	clock    time.Duration // the node's wall clock minus ours
	renewed  time.Time     // when the latest beat was sent, by our clock; before any beat, when we met
	answered time.Time     // when AnswerExpired last answered it
	beats    int           // copies of the latest beat that we sent
	copies   int           // copies of the record that we sent
	size     int           // of the encoded record, 0 = not known yet
}

type status uint8

const (
	pending status = iota // a record without a beat
	live
	expired // the lease ran out; a newer beat revives it
	retired // farewell, or superseded by a later incarnation: for good
)

// NewSet returns a set that holds only self, which is Settling and whose first
// lease begins at now.
func NewSet(now time.Time, self Record, p Params) *Set {
	s := &Set{
		params:    p,
		state:     Settling,
		byID:      make(map[NodeID]*entry),
		known:     make(map[Handle]*entry),
		requested: make(map[Handle]time.Time),
		ahead:     make(map[Handle]stamp),
	}
	rec := self.clone()
	rec.Version = max(1, rec.Version)
	s.admit(now, rec)
	return s
}

// admit makes rec the record of this node and begins a lease under it.
func (s *Set) admit(now time.Time, rec *Record) {
	var table uint32
	load := NoLoad
	if s.self != nil {
		table, load = s.self.table, s.self.load
	}
	s.self = &entry{
		rec: rec, handle: HandleOf(rec.ID, rec.Incarnation), status: live,
		state: s.state, seq: 1, table: table, load: load, renewed: now,
	}
	s.byID[rec.ID] = s.self
	s.known[s.self.handle] = s.self
}

// Self returns the record of this node.
func (s *Set) Self() *Record { return s.self.rec }

// State returns what this node does, as SetState said last.
func (s *Set) State() State { return s.state }

// SetState says what this node does from its next beat on, which tells others
// and the own View. The caller beats next. Left is for good: whoever hears it
// listens to no later beat of this incarnation.
func (s *Set) SetState(state State) { s.state = state }

// Handle returns the handle of this node's present incarnation.
func (s *Set) Handle() Handle { return s.self.handle }

// Renewed returns when this node's own lease was renewed last.
func (s *Set) Renewed() time.Time { return s.self.renewed }

// Stats returns the counters.
func (s *Set) Stats() Stats { return s.stats }

// Beat renews this node's own lease. Load and table travel with it: the units
// that the node carries (or NoLoad), and the digest of its placement table.
func (s *Set) Beat(now time.Time, load int64, table uint32) {
	s.self.seq++
	s.self.state = s.state
	s.self.renewed = now
	s.self.load = max(NoLoad, load)
	s.self.table = table
	s.self.beats = 0
	s.updateClusterClock(now)
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

// Expire ends the leases that are older than the TTL, forgets what is long
// over, and reports whether the live set changed. O(nodes).
func (s *Set) Expire(now time.Time) (changed bool) {
	for h, e := range s.known {
		if e == s.self {
			continue
		}
		over := now.Sub(e.renewed)
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
	for h, at := range s.requested {
		if now.Sub(at) > requestInterval {
			delete(s.requested, h)
		}
	}
	return s.refute(now) || changed
}

// NextDeadline returns the first instant at which Expire will change the live
// set, if nothing renews a lease before, and whether there is one. O(nodes).
func (s *Set) NextDeadline() (at time.Time, ok bool) {
	for _, e := range s.byID {
		if e.status == live && e != s.self && (!ok || e.renewed.Before(at)) {
			at, ok = e.renewed, true
		}
	}
	if r := s.duplicate; r.entry != nil && (!ok || r.since.Before(at)) {
		at, ok = r.since, true // Expire will refute it
	}
	return at.Add(s.params.TTL + 1), ok
}

// ExpireOthers ends every lease but the own one: what this node knew is out of date
// because it was stopped for longer than the TTL. Only beats newer than those
// it knew bring a node back.
func (s *Set) ExpireOthers(now time.Time) {
	for _, e := range s.byID {
		if e.status == live && e != s.self {
			e.status, e.renewed = expired, now
		}
	}
}
