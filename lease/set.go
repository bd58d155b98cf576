package lease

import (
	"time"
)

// Params are the settings of a Set. All nodes of a cluster share them.
type Params struct {
	TTL      time.Duration // a lease is live while its age ≤ TTL
	MaxSkew  time.Duration // how far a node's clock may be ahead of the cluster's clock
	Settings uint32        // messages with another hash are rejected
}

// forgetAfter is how long a Set remembers an ended lease, so that it can reject the lease's old heartbeats.
func (p Params) forgetAfter() time.Duration { return max(time.Minute, 10*p.TTL) }

// Stats counts what a Set has done since it was made.
type Stats struct {
	HeartbeatsSent    uint64 `json:"heartbeats_sent"`    // copies of this node's heartbeats
	HeartbeatsRelayed uint64 `json:"heartbeats_relayed"` // copies of other nodes' heartbeats
	HeartbeatsApplied uint64 `json:"heartbeats_applied"` // heartbeats that began or renewed a lease
	HeartbeatsStale   uint64 `json:"heartbeats_stale"`   // heartbeats that were already known, or older than the TTL
	AgesApplied       uint64 `json:"ages_applied"`       // ages that renewed a lease
	SkewRejected      uint64 `json:"skew_rejected"`      // heartbeats from clocks too far ahead
	SettingsRefused   uint64 `json:"settings_refused"`   // messages from a cluster with other settings
	RecordsRefused    uint64 `json:"records_refused"`    // records refused because MaxNodes is reached
	FromPast          uint64 `json:"from_past"`          // messages of an earlier cluster time, including recorded ones that were sent again
	FromFuture        uint64 `json:"from_future"`        // messages of a later cluster time that no live member sent
	Expired           uint64 `json:"expired"`            // leases that expired
	Crashed           uint64 `json:"crashed"`            // leases ended by a confirmed failure
	Reincarnations    uint64 `json:"reincarnations"`     // new incarnations that this node took while running
}

// Set is a node's knowledge of all leases. It is a pure state machine: it reads no clock and does no I/O. It
// is not safe for concurrent use.
//
// Every time.Time argument must have a reading of the caller's monotonic clock, which determines the age of
// leases, and of its wall clock, which is only used to measure skew.
//
// A Set consists of several protocols. Each keeps its own state, adds its part to outgoing messages, applies
// its part of incoming messages, and says when to call it again.
type Set struct {
	core
	present
	own
	rows
	ages
	failures
	cordons
	skew
	expiry
	splits
}

// Effect is the result of [Set.Apply]. [Set.Replies] has the messages that follow.
type Effect struct {
	Counts    bool      // the message is from this cluster and from the present
	Changed   bool      // the live set changed, or the record or state of a live node
	Urgent    bool      // relay now rather than in the next round of gossip
	Refute    time.Time // others report that this node has ended: send a heartbeat at this time; zero = they do not
	Duplicate *Record   // another process runs under this node's id with this later incarnation: stop

	Challenge string // apply the message again when [Set.Challenge], sent to this address, was answered; empty = no
	Answered  bool   // the message answers this node's challenge: the sender runs
	Arrives   bool   // like Answered, or an answer to a newcomer's stream: packets arrive at this node's address
	BothWays  bool   // it answers a packet: packets arrive both ways
	OfMember  bool   // it answers [Set.Question]
	Overdue   bool   // this node's lease may have ended for others long ago: ask members with [Set.Question]
	Suspended bool   // the lease has ended: this process was suspended, and its clock stood still

	pullRecords []Handle       // this node lacks these records
	pullBuckets []BucketDigest // this node lacks something of these buckets
	pullCordons bool           // this node lacks cordons
	behind      bool           // the sender's cluster time is behind
}

// NewSet returns a set that holds only self, in state Settling and with a lease that
// begins at now.
func NewSet(now time.Time, self Record, p Params) *Set {
	s := &Set{
		core: core{
			params: p, time: startTime(now),
			table: table{known: make(map[Handle]*entry), requested: make(map[Handle]time.Time)},
		},
		present: present{runs: make(map[Handle]time.Time), bothWays: make(map[Handle]time.Time)},
		ages:    ages{differs: make(map[BucketID]difference)},
		skew:    skew{ahead: make(map[Handle]aheadClock)},
		own:     own{state: Settling, born: self.Incarnation},
	}
	s.connect()
	rec := self.clone()
	rec.Version = max(1, rec.Version)
	rec.MinWire, rec.MaxWire = MinWireVersion, WireVersion
	s.own.admit(now, rec)
	return s
}

// connect gives each protocol the others that it uses.
func (s *Set) connect() {
	c := &s.core
	s.own.core, s.skew.core, s.expiry.core, s.failures.core, s.cordons.core, s.splits.core = c, c, c, c, c, c
	s.present.core, s.present.own, s.present.cordons, s.present.failures = c, &s.own, &s.cordons, &s.failures
	s.rows.core, s.rows.own, s.rows.failures, s.rows.skew = c, &s.own, &s.failures, &s.skew
	s.ages.core, s.ages.own = c, &s.own
}

// Heartbeat renews this node's own lease. The heartbeat carries load, in units or NoLoad, and
// table, the digest of the node's placement table.
func (s *Set) Heartbeat(now time.Time, load int64, table uint32) {
	at := max(s.time.at(now), s.self.at+1)
	s.present.advance(now, at-s.time.at(now)) // two heartbeats within a millisecond
	s.own.renew(now, at, load, table)
	s.skew.update(now)
}

// Cordon keeps a node from owning anything for d, at most MaxCordonTime, from now on. If d is 0, it ends an
// earlier cordon. The caller must send the news.
func (s *Set) Cordon(now time.Time, id NodeID, d time.Duration, reason string) error {
	c, ok, err := s.cordons.decide(now, id, d, reason)
	if ok {
		s.present.advance(now, max(0, c.At-s.time.at(now))) // two decisions within a millisecond
		s.cordons.merge(now, []Cordon{c})
	}
	return err
}

// Apply merges a message. It costs O(size of the message). Except for relaying, Apply is commutative and
// idempotent. It drops heartbeats of nodes without a record, and heartbeats too far ahead of the known
// clocks. Both are repaired by the node's next heartbeat. No heartbeat follows a leave message, but a dropped
// leave message arrives again from nodes that relay it, or else the lease expires.
func (s *Set) Apply(now time.Time, m *Message) Effect {
	var e Effect
	if m.Settings != s.params.Settings {
		s.stats.SettingsRefused++
		return e
	}
	if !s.present.accepts(now, m, &e) {
		return e
	}
	e.Counts = true
	members := len(s.live)
	s.splits.apply(m)
	s.expiry.remember(now, m.From)
	s.rows.apply(now, m, &e)
	s.ages.apply(now, m, &e)
	s.failures.apply(now, m, &e)
	s.ages.pullBack(now, m, &e)
	s.cordons.apply(now, m, &e)
	if e.Changed {
		s.failures.review(now, &e)
	}
	if len(s.live) != members { // members only; a changed state or record does not change the clocks
		s.skew.update(now)
	}
	return e
}

// Compose returns messages of at most budget encoded bytes, each for the given number of recipients. There
// are as many messages as the ages of all leases need. Each has this node's heartbeat. The space goes first
// to new records, then to failure reports, rows with news, ages, and the rest of the rows, least sent first.
// Messages also pull leases that are about to expire, because the recipients may know later heartbeats.
// Compose returns nothing if everything was sent often enough, or if not even this node's heartbeat fits. It
// costs O(nodes).
func (s *Set) Compose(now time.Time, budget, recipients int) (messages []*Message) {
	for range s.ages.messages(budget) {
		if m := s.compose(now, budget, recipients); m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

func (s *Set) compose(now time.Time, budget, recipients int) *Message {
	d := s.draft(now, budget)
	d.recipients = recipients
	d.news = s.self.agesSent < int32(s.rowCopies())
	if !d.heartbeat(s.self) {
		return nil // the sizes of other rows assume its table digest
	}
	s.self.agesSent += int32(recipients)
	s.cordons.add(d)
	s.rows.addRecords(d)
	s.failures.add(now, d)
	due := s.rows.due(now)
	reserved := d.free - d.free/3
	d.free -= reserved
	due = s.rows.add(d, due)
	d.free += reserved
	s.expiry.add(now, d, s.deadline())
	s.ages.add(d)
	s.rows.add(d, due)
	if !d.news {
		return nil
	}
	return d.Message
}

// Expire ends leases that are older than the TTL, forgets leases that ended long ago, and reports whether the
// live set changed. It costs O(nodes).
func (s *Set) Expire(now time.Time) (changed bool) {
	var e Effect
	changed = s.expiry.expire(now)
	s.failures.review(now, &e)
	s.expiry.forget(now)
	s.table.gather()
	s.rows.expire(now)
	s.ages.expire(now)
	s.present.expire(now)
	s.oldest = 0
	ended := s.cordons.expire(now)
	outbid := s.own.expire(now)
	return changed || e.Changed || ended || outbid
}

// NextDeadline returns the earliest time at which Expire can change the live set, unless a message comes
// first. It returns false if there is none. It costs O(nodes) after a lease began and after Expire, otherwise
// O(1).
func (s *Set) NextDeadline() (at time.Time, ok bool) {
	at = s.deadline()
	return at, !at.IsZero()
}

func (s *Set) deadline() (first time.Time) {
	for _, at := range [...]time.Time{s.expiry.deadline(), s.own.deadline(), s.cordons.deadline()} {
		if first.IsZero() || (!at.IsZero() && at.Before(first)) {
			first = at
		}
	}
	return first
}

// message returns a message of this node without news.
func (s *Set) message(now time.Time) *Message {
	at := s.time.at(now)
	return &Message{
		Settings: s.params.Settings, From: s.self.handle,
		Stamp: at, Provisional: s.time.provisional, Missed: s.splits.misses(at), SentAt: now,
		Cordoned: s.cordons.digest,
	}
}

// draft begins a message of at most budget bytes.
func (s *Set) draft(now time.Time, budget int) *draft {
	return &draft{Message: s.message(now), core: &s.core, free: budget - messageOverhead}
}

// Sync returns a message with all live nodes, for a joining node or an anti-entropy exchange. It also has the
// records of recently ended leases, and their leave messages. A receiver for which an earlier incarnation of
// such a node is live needs them, and so does a later process of the node, which has to take a later
// incarnation if its clock was set back. A leave message has its age, so that all sets forget it at about the
// same time. The message leaves room for Extra.
func (s *Set) Sync(now time.Time) *Message {
	d := s.draft(now, MaxMessageBytes-MaxExtraBytes-messageOverhead-MaxCordons*maxCordonBytes) // with room for founders and a challenge
	d.Cordons = s.cordons.all
	add := func(e *entry) {
		if e.recordSize()+maxHeartbeatBytes > d.free {
			return
		}
		d.record(e)
		if e.spreads() {
			d.heartbeat(e)
		}
	}
	add(s.self)
	for _, e := range s.nodes {
		if e != s.self && (e.status == live || e.hadLease()) {
			add(e)
		}
	}
	for _, e := range s.failures.reported {
		s.failures.addAgainst(d, e)
	}
	return d.Message
}

// Challenge returns a message to be sent as a packet, which its receiver answers with [Set.Echo]. The random
// number must be odd.
func (s *Set) Challenge(now time.Time, random uint64) *Message {
	m := s.message(now)
	m.Challenge = s.present.nonceAt(now, random)
	m.Records = []*Record{s.self.rec}
	return m
}

// Question returns a message to be sent as a packet to the address of a member. The answer shows whether this
// node was suspended: see [Effect.Suspended]. The random number must be odd.
func (s *Set) Question(now time.Time, random uint64) *Message {
	m := s.Challenge(now, random)
	m.Challenge ^= ofMember
	return m
}

// Echo returns the answer to a challenge. It has the present cluster time, the nonce and, if the challenger
// is live here, its latest heartbeat. So an answer is longer than the challenge by at most that heartbeat.
func (s *Set) Echo(now time.Time, challenge *Message) *Message {
	d := s.draft(now, messageOverhead+maxHeartbeatBytes)
	d.Echo = challenge.Challenge
	if e := s.known[challenge.From]; e != nil && e.status == live && e != s.self {
		d.heartbeat(e)
	}
	return d.Message
}

// Stats returns the counters.
func (s *Set) Stats() Stats { return s.stats }

// Stamp returns the cluster time at t by this node's estimate, and 0 for the zero time.
func (s *Set) Stamp(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return s.time.at(t)
}

// Until returns how long it takes from now until a moment of cluster time.
func (s *Set) Until(now time.Time, at Stamp) time.Duration { return millis(at - s.time.at(now)) }

// splits relays when a node last missed a voter, for the policy for splits.
type splits struct {
	*core
	missing bool  // this node misses a voter
	missed  Stamp // when any node last missed a voter, as far as this one has heard; 0 = never
}

// SetMissing says whether this node misses a voter, as defined by the policy for splits. Its messages say so,
// and other nodes relay when a node last missed a voter.
func (p *splits) SetMissing(missing bool) { p.missing = missing }

func (p *splits) apply(m *Message) { p.missed = max(p.missed, min(m.Missed, m.Stamp)) }

// misses returns when a node last missed a voter.
func (p *splits) misses(at Stamp) Stamp {
	if p.missing {
		p.missed = at
	}
	return p.missed
}

// Agreed looks at the latest heartbeat of each other live node that has a table. It returns the time of the
// oldest of them, or now if there are none. It returns zero if one of these nodes has a table with another
// digest, or has sent no heartbeat since a node last missed a voter. It costs O(n).
func (p *splits) Agreed(now time.Time, table uint32) time.Time {
	oldest := p.time.at(now)
	for _, e := range p.live {
		if e == p.self || (e.state == Settling && e.table == 0) {
			continue
		}
		if p.missing || e.table != table || e.renewed() <= p.missed {
			return time.Time{}
		}
		oldest = min(oldest, e.renewed())
	}
	return p.time.local(oldest)
}
