package lease

import (
	"cmp"
	"slices"
	"time"
)

// Params are the settings of a Set. All nodes of a cluster share them.
type Params struct {
	TTL      time.Duration // a lease is live while its age ≤ TTL
	MaxSkew  time.Duration // how far a node's clock may be ahead of the cluster's clock
	Settings uint32        // messages with another hash are rejected
}

// forgetAfter is how long a Set remembers an ended lease, to reject old beats of it.
func (p Params) forgetAfter() time.Duration { return max(time.Minute, 10*p.TTL) }

// Stats counts what a Set has done since it was made.
type Stats struct {
	BeatsSent       uint64 `json:"beats_sent"`       // copies of this node's beats
	BeatsRelayed    uint64 `json:"beats_relayed"`    // copies of other nodes' beats
	BeatsApplied    uint64 `json:"beats_applied"`    // began or renewed a lease
	BeatsStale      uint64 `json:"beats_stale"`      // known already, or older than the TTL
	SkewRejected    uint64 `json:"skew_rejected"`    // stamped too far ahead
	SettingsRefused uint64 `json:"settings_refused"` // messages from a cluster with other settings
	RecordsRefused  uint64 `json:"records_refused"`  // MaxNodes reached
	Expired         uint64 `json:"expired"`          // leases
	Reincarnations  uint64 `json:"reincarnations"`   // new incarnations that this node took while running
}

// Set is one node's knowledge of all leases. It is a pure state machine: it
// reads no clock and does no I/O. It is not safe for concurrent use.
//
// Every time.Time argument carries the caller's monotonic clock, which alone
// decides the age of leases, and its wall clock, which is used to judge skew.
type Set struct {
	params    Params
	self      *entry
	state     State             // of this node, from its next beat
	byID      map[NodeID]*entry // the latest incarnation that had a lease here
	nodes     []*entry          // the same, sorted by id
	known     map[Handle]*entry // these, and incarnations that have no lease yet or no longer
	requested map[Handle]time.Time
	ahead     map[Handle]stamp // clocks of rejected beats
	duplicate duplicate
	clock     time.Duration // the cluster's clock minus this node's; see clock.go
	stats     Stats
	rows      []*entry // scratch of Compose and Sync
}

// entry is what a Set knows of one incarnation of a node.
type entry struct {
	rec         *Record
	handle      Handle
	status      status
	state       State // in its latest beat; 0 = no beat yet
	seq         uint32
	table       uint32
	load        int64
	clock       time.Duration // the node's wall clock minus this node's
	renewed     time.Time     // when the latest beat was sent, by this node's clock; before the first beat, when the entry was added
	answered    time.Time     // when AnswerExpired last answered the node
	beatsSent   int           // copies of the latest beat sent by this node
	recordsSent int           // copies of the record sent by this node
	size        int           // of the encoded record; 0 = not computed yet
}

type status uint8

const (
	pending status = iota // a record without a beat
	live
	expired // a newer beat renews the lease
	retired // final: farewell, or replaced by a later incarnation
)

// NewSet returns a set that holds only self, in state Settling and with a lease that
// begins at now.
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
	s.putNode(s.self)
	s.known[s.self.handle] = s.self
}

// putNode makes e the latest incarnation of its node: O(nodes) for a new id.
func (s *Set) putNode(e *entry) {
	i, known := s.searchNode(e.rec.ID)
	if !known {
		s.nodes = slices.Insert(s.nodes, i, e)
	}
	s.nodes[i], s.byID[e.rec.ID] = e, e
}

func (s *Set) searchNode(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(s.nodes, id, func(e *entry, id NodeID) int { return cmp.Compare(e.rec.ID, id) })
}

// Self returns the record of this node.
func (s *Set) Self() *Record { return s.self.rec }

// State returns the state that SetState set last.
func (s *Set) State() State { return s.state }

// SetState sets the state of this node from its next beat on, for other nodes and for
// the own View. The caller sends a beat next. Left is final: receivers ignore all
// later beats of this incarnation.
func (s *Set) SetState(state State) { s.state = state }

// Handle returns the handle of this node's current incarnation.
func (s *Set) Handle() Handle { return s.self.handle }

// Renewed returns when this node last renewed its own lease.
func (s *Set) Renewed() time.Time { return s.self.renewed }

// Stats returns the counters.
func (s *Set) Stats() Stats { return s.stats }

// Beat renews this node's own lease. The beat carries load, in units or NoLoad, and
// table, the digest of the node's placement table.
func (s *Set) Beat(now time.Time, load int64, table uint32) {
	s.self.seq++
	s.self.state = s.state
	s.self.renewed = now
	s.self.load = max(NoLoad, load)
	s.self.table = table
	s.self.beatsSent = 0
	s.updateClusterClock(now)
}

// Update changes this node's record, apart from its identity. The caller sends a beat
// next, so that other nodes request the new record.
func (s *Set) Update(change func(*Record)) {
	rec := s.self.rec.clone()
	change(rec)
	rec.ID, rec.Incarnation, rec.Version = s.self.rec.ID, s.self.rec.Incarnation, s.self.rec.Version+1
	s.self.rec = rec
	s.self.recordsSent, s.self.size = 0, 0
}

// Expire ends the leases that are older than the TTL, forgets the leases that ended
// long ago, and reports whether the live set changed. O(nodes).
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
				i, _ := s.searchNode(e.rec.ID)
				s.nodes = slices.Delete(s.nodes, i, i+1)
			}
		}
	}
	for h, at := range s.requested {
		if now.Sub(at) > requestInterval {
			delete(s.requested, h)
		}
	}
	return s.outbid(now) || changed
}

// NextDeadline returns the first instant at which Expire will change the live set
// unless a beat renews a lease before, and whether there is one. O(nodes).
func (s *Set) NextDeadline() (at time.Time, ok bool) {
	for _, e := range s.nodes {
		if e.status == live && e != s.self && (!ok || e.renewed.Before(at)) {
			at, ok = e.renewed, true
		}
	}
	if r := s.duplicate; r.entry != nil && (!ok || r.since.Before(at)) {
		at, ok = r.since, true // Expire will outbid it
	}
	return at.Add(s.params.TTL + 1), ok
}

// ExpireOthers ends every lease except this node's. After a pause of this process for
// longer than the TTL, all that it knows is out of date. Only beats newer than the known
// ones revive a node.
func (s *Set) ExpireOthers(now time.Time) {
	for _, e := range s.nodes {
		if e.status == live && e != s.self {
			e.status, e.renewed = expired, now
		}
	}
}
