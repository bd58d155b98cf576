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

// forgetAfter is how long a Set remembers an ended lease, to reject old heartbeats of it.
func (p Params) forgetAfter() time.Duration { return max(time.Minute, 10*p.TTL) }

// Stats counts what a Set has done since it was made.
type Stats struct {
	HeartbeatsSent    uint64 `json:"heartbeats_sent"`    // copies of this node's heartbeats
	HeartbeatsRelayed uint64 `json:"heartbeats_relayed"` // copies of other nodes' heartbeats
	HeartbeatsApplied uint64 `json:"heartbeats_applied"` // began or renewed a lease
	HeartbeatsStale   uint64 `json:"heartbeats_stale"`   // known already, or older than the TTL
	AgesApplied       uint64 `json:"ages_applied"`       // renewed a lease
	SkewRejected      uint64 `json:"skew_rejected"`      // stamped too far ahead
	SettingsRefused   uint64 `json:"settings_refused"`   // messages from a cluster with other settings
	RecordsRefused    uint64 `json:"records_refused"`    // MaxNodes reached
	FromPast          uint64 `json:"from_past"`          // messages of an earlier cluster time, recorded ones sent again among them
	FromFuture        uint64 `json:"from_future"`        // messages of a later cluster time that no live member sent
	Expired           uint64 `json:"expired"`            // leases
	Crashed           uint64 `json:"crashed"`            // leases ended by a confirmed failure
	Reincarnations    uint64 `json:"reincarnations"`     // new incarnations that this node took while running
}

// Set is one node's knowledge of all leases. It is a pure state machine: it
// reads no clock and does no I/O. It is not safe for concurrent use.
//
// Every time.Time argument carries the caller's monotonic clock, which alone
// decides the age of leases, and its wall clock, which is used to measure skew.
type Set struct {
	params     Params
	self       *entry
	state      State     // of this node, from its next heartbeat
	renewed    time.Time // when this node sent its latest heartbeat
	time       clusterTime
	challenges challenges
	led        Stamp             // the steps ahead of cluster time since a member said that it holds this node, together
	doubted    time.Time         // when a sender that is no member first had a time by which the own lease has ended
	nodes      []*entry          // the latest incarnation of each node that had a lease here, sorted by id
	place      int               // of this node among them; -1 = to be computed
	known      map[Handle]*entry // these, and incarnations that have no lease yet or no longer
	live       []*entry          // the live ones, this node's included, by handle
	order      []Handle          // their handles
	reordered  uint32            // counts the changes of order
	vitals     []*vitals         // their vitals
	census     census            // of them, without this node
	drains     drains            // that are planned
	scattered  bool              // leases began since gather: vitals are not next to each other
	applying   bool              // the heartbeats of a message are being applied: leases that begin get no place yet
	begun      []*entry          // live ones that are not in live, order and vitals yet; they get their places together
	peers      []*entry          // the others with an address, by id; nil = to be computed
	shown      Stamp             // of the latest own heartbeat that others were found to know
	claimed    Stamp             // no heartbeat of this incarnation that was sent before a step back is later; 0 = there was none
	oldest     Stamp             // no live lease of another node is older; 0 = to be computed
	requested  map[Handle]time.Time
	differs    map[BucketID]difference
	pieces     [maxBits + 1][]piece  // of this node's live set, by their bits, computed as needed
	ahead      map[Handle]aheadClock // of rejected heartbeats
	reported   []*entry              // those with failure reports
	duplicate  duplicate
	born       uint64        // the incarnation with which this process began
	former     *entry        // of the process before this one under the same id; nil = none is known
	formerLeft bool          // it sent a leave message
	revived    uint64        // leases of others that came back after they had expired
	reached    uint64        // of these, those of nodes that had not given up their own leases
	clock      time.Duration // the cluster's clock minus this node's; see clock.go
	missing    bool          // this node misses a voter
	missed     Stamp         // when a node last did, as far as this one heard; 0 = never
	lost       bool          // a member ended or stopped being Active since the last call of Lost
	stats      Stats
	turn       uint32 // the bucket whose ages are sent next
	pullTurn   int    // the live node from which on leases are pulled
	spread     spread
	cordons    cordons
	rows       []*entry    // scratch of Compose and Answer
	candidates []candidate // likewise
}

// entry is what a Set knows of one incarnation of a node.
type entry struct {
	*vitals
	rec     *Record
	handle  Handle
	rowAt   Stamp         // of the latest heartbeat that was received whole; 0 = none
	load    int64         // in that heartbeat
	ended   time.Duration // when the entry was added, or its lease ended, by Set.since; forgotten some time later
	rare    *rare         // nil = empty
	size    int32         // of the encoded record; 0 = not computed yet
	crashed bool          // the lease was ended by a confirmed failure; it has not been renewed since
	refused bool          // connections to the process were refused: it has ended, and was not cut off
}

// rare is the part of an entry that few have: each node of a large cluster has an entry for
// each other one.
type rare struct {
	rest     []byte    // fields of the latest row that this program does not know
	answered time.Time // when AnswerExpired last answered the node
	drawn    Stamp     // until when the messages count as spread that the node drew by requests; see draws

	failureReports []failureReport // the latest ones, at most one of each node
}

// more returns the rare part of e, to be changed.
func (e *entry) more() *rare {
	if e.rare == nil {
		e.rare = new(rare)
	}
	return e.rare
}

func (e *entry) rest() []byte {
	if e.rare == nil {
		return nil
	}
	return e.rare.rest
}

func (e *entry) setRest(rest []byte) {
	if len(rest) > 0 || e.rare != nil {
		e.more().rest = rest
	}
}

func (e *entry) failureReports() []failureReport {
	if e.rare == nil {
		return nil
	}
	return e.rare.failureReports
}

type status uint8

const (
	pending status = iota // a record without a heartbeat
	live
	expired // a newer heartbeat renews the lease
	retired // final: leave message, or replaced by a later incarnation
)

// NewSet returns a set that holds only self, in state Settling and with a lease that
// begins at now.
func NewSet(now time.Time, self Record, p Params) *Set {
	s := &Set{
		params:     p,
		state:      Settling,
		known:      make(map[Handle]*entry),
		requested:  make(map[Handle]time.Time),
		differs:    make(map[BucketID]difference),
		ahead:      make(map[Handle]aheadClock),
		time:       startTime(now),
		challenges: challenges{runs: make(map[Handle]time.Time), bothWays: make(map[Handle]time.Time)},
	}
	rec := self.clone()
	rec.Version = max(1, rec.Version)
	rec.MinWire, rec.MaxWire = MinWireVersion, WireVersion
	s.born = rec.Incarnation
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
	at := s.time.at(now)
	s.self = &entry{
		vitals: &vitals{state: s.state, at: at, table: table},
		rec:    rec, handle: rec.Handle(), rowAt: at, load: load,
	}
	s.renewed = now
	s.become(s.self, live)
	s.putNode(s.self)
	s.known[s.self.handle] = s.self
}

// putNode makes e the latest incarnation of its node: O(nodes) for a new id.
func (s *Set) putNode(e *entry) {
	i, known := s.searchNode(e.rec.ID)
	if !known {
		s.nodes, s.place = slices.Insert(s.nodes, i, e), -1
	}
	s.nodes[i] = e
}

// end ends the lease of e, or keeps it ended.
func (s *Set) end(now time.Time, e *entry, status status) {
	s.become(e, status)
	e.ended = s.since(now)
}

// since returns the time between the beginning of the set and an instant, which may be
// centuries ago.
func (s *Set) since(at time.Time) time.Duration { return max(at.Sub(s.time.origin), -maxClock) }

// age returns the age of the lease of e.
func (s *Set) age(now time.Time, e *entry) time.Duration { return millis(s.time.at(now) - e.renewed()) }

// latest returns the latest incarnation of a node that had a lease here, or nil.
func (s *Set) latest(id NodeID) *entry {
	if i, ok := s.searchNode(id); ok {
		return s.nodes[i]
	}
	return nil
}

func (s *Set) searchNode(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(s.nodes, id, func(e *entry, id NodeID) int { return cmp.Compare(e.rec.ID, id) })
}

// Self returns the record of this node.
func (s *Set) Self() *Record { return s.self.rec }

// State returns the state that SetState set last.
func (s *Set) State() State { return s.state }

// SetState sets the state of this node from its next heartbeat on, for other nodes and for
// the own View. The caller sends a heartbeat next. Left is final: receivers ignore all
// later heartbeats of this incarnation.
func (s *Set) SetState(state State) { s.state = state }

// Handle returns the handle of this node's current incarnation.
func (s *Set) Handle() Handle { return s.self.handle }

// Shown returns when this node sent the latest heartbeat that another node was found to have
// received: messages of others say what they know of this node, too. It lags by TTL/16.
func (s *Set) Shown() time.Time { return s.time.local(s.shown) }

// Renewed returns when this node last renewed its own lease.
func (s *Set) Renewed() time.Time { return s.renewed }

// Stats returns the counters.
func (s *Set) Stats() Stats { return s.stats }

// Heartbeat renews this node's own lease. The heartbeat carries load, in units or NoLoad, and
// table, the digest of the node's placement table.
func (s *Set) Heartbeat(now time.Time, load int64, table uint32) {
	at := max(s.time.at(now), s.self.at+1)
	if s.self.state != s.state {
		s.lost = true
		s.differsIn(s.self)
	}
	s.advance(now, at-s.time.at(now)) // two heartbeats within a millisecond
	s.self.at, s.self.rowAt, s.renewed = at, at, now
	s.self.state, s.self.load, s.self.table = s.state, max(NoLoad, load), table
	s.self.agesSent = 0
	// The heartbeat comes with the record, to a few members: one of them may not know it.
	s.self.recordsSent = min(s.self.recordsSent, int32(s.recordCopies())-1)
	s.updateClusterClock(now)
}

// NextHeartbeat returns when a heartbeat of this node is next told from its latest one by all
// who learn of it by its age alone: now, or within TTL/16.
func (s *Set) NextHeartbeat(now time.Time) time.Time {
	tick := s.tick()
	next := (s.self.at/tick + 1) * tick
	if s.tablesInRows() || s.time.at(now) >= next {
		return now
	}
	return s.time.local(next)
}

// tablesInRows reports whether the set is so small that rows with new tables cost little.
func (s *Set) tablesInRows() bool { return len(s.nodes) <= bucketSize }

// Update changes this node's record, apart from its identity. The caller sends a heartbeat
// next, so that other nodes request the new record.
func (s *Set) Update(change func(*Record)) {
	rec := s.self.rec.clone()
	change(rec)
	rec.ID, rec.Incarnation, rec.Version = s.self.rec.ID, s.self.rec.Incarnation, s.self.rec.Version+1
	s.self.rec = rec
	s.self.size = 0
	s.drains.plan(rec)
	s.recordNews(s.self)
	s.differsIn(s.self)
}
