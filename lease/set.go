package lease

import (
	"time"
)

// Params are the settings of a Set. All nodes of a cluster must have the same Params.
type Params struct {
	TTL      time.Duration // a lease is live while its age ≤ TTL
	MaxSkew  time.Duration // how far a node's clock may be ahead of the cluster's clock
	Settings uint32        // hash of cluster-wide settings; a set rejects messages with a different hash
}

// forgetAfter is how long a Set remembers an ended lease, so that the set can reject the lease's old
// heartbeats.
func (p Params) forgetAfter() time.Duration { return max(time.Minute, 10*p.TTL) }

// Stats contains counters of a Set since its creation.
type Stats struct {
	HeartbeatsSent    uint64 `json:"heartbeats_sent"`    // copies of this node's heartbeats
	HeartbeatsRelayed uint64 `json:"heartbeats_relayed"` // copies of other nodes' heartbeats
	HeartbeatsApplied uint64 `json:"heartbeats_applied"` // heartbeats that began or renewed a lease
	HeartbeatsStale   uint64 `json:"heartbeats_stale"`   // heartbeats that were already known, or older than the TTL
	AgesApplied       uint64 `json:"ages_applied"`       // ages that renewed a lease
	SkewRejected      uint64 `json:"skew_rejected"`      // heartbeats from clocks too far ahead
	SettingsRefused   uint64 `json:"settings_refused"`   // messages from a cluster with other settings
	RecordsRefused    uint64 `json:"records_refused"`    // records refused because the set was full
	FromPast          uint64 `json:"from_past"`          // messages from an earlier cluster time, including replayed messages
	FromFuture        uint64 `json:"from_future"`        // messages from a later cluster time whose sender is not a live member
	Expired           uint64 `json:"expired"`            // leases that expired
	Crashed           uint64 `json:"crashed"`            // leases ended by a confirmed failure
	Reincarnations    uint64 `json:"reincarnations"`     // new incarnations that this node took while running
}

// Set is one node's view of all leases. A Set is a pure state machine that reads no clock and does no I/O. It
// is not safe for concurrent use.
//
// Every time.Time argument must contain a reading of the monotonic clock, which determines the age of leases,
// and of the wall clock, which a Set only uses to measure skew.
//
// A Set consists of several protocols. Each protocol owns its state, adds its part to outgoing messages,
// applies its part of incoming messages, and returns the deadline of its next change.
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

// Effect is the result of [Set.Apply]. Pass it to [Set.Replies] to get the answers.
type Effect struct {
	Counts    bool      // the set accepted the message, because it is from this cluster and not a replay
	Changed   bool      // the live set changed, or the record or state of a live node
	Urgent    bool      // gossip now instead of in the next round
	Refute    time.Time // other nodes report that this node has ended: send a heartbeat at this time; zero = no reports
	Duplicate *Record   // another process with this node's id and this later incarnation is running: stop

	Challenge string // send [Set.Challenge] to this address, and apply the message again after the answer; empty = no challenge
	Answered  bool   // the message answers this node's challenge, so the sender is running
	Arrives   bool   // the message answers a challenge in a packet or over a stream, so packets arrive at this node
	BothWays  bool   // the message answers a challenge in a packet, so packets arrive both ways
	OfMember  bool   // the message answers [Set.Question]
	Overdue   bool   // this node's lease may have ended long ago at other nodes: send [Set.Question] to members
	Suspended bool   // this node's lease has ended, because the process was suspended together with its clock

	pullRecords []Handle       // this node lacks these records
	pullBuckets []BucketDigest // this node lacks something in these buckets
	pullCordons bool           // this node lacks cordons
	behind      bool           // the sender's cluster time is behind
}

// NewSet returns a set that contains only self, in state Settling and with a lease that begins at now.
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

// connect gives each protocol pointers to the other protocols that it uses.
func (s *Set) connect() {
	c := &s.core
	s.own.core, s.skew.core, s.expiry.core, s.failures.core, s.cordons.core, s.splits.core = c, c, c, c, c, c
	s.present.core, s.present.own, s.present.cordons, s.present.failures = c, &s.own, &s.cordons, &s.failures
	s.rows.core, s.rows.own, s.rows.failures, s.rows.skew = c, &s.own, &s.failures, &s.skew
	s.ages.core, s.ages.own = c, &s.own
}

// Heartbeat renews this node's own lease. The arguments are the node's load, in units or NoLoad, and the
// digest of its placement table.
func (s *Set) Heartbeat(now time.Time, load int64, table uint32) {
	at := max(s.time.at(now), s.self.at+1)
	s.present.advance(now, at-s.time.at(now)) // in case of two heartbeats within a millisecond
	s.own.renew(now, at, load, table)
	s.skew.update(now)
}

// Cordon prevents a node from owning anything for the duration d, at most MaxCordonTime, from now on. If d is
// 0, Cordon ends an earlier cordon of the node. The caller must gossip afterwards.
func (s *Set) Cordon(now time.Time, id NodeID, d time.Duration, reason string) error {
	c, ok, err := s.cordons.decide(now, id, d, reason)
	if ok {
		s.present.advance(now, max(0, c.At-s.time.at(now))) // in case of two cordons within a millisecond
		s.cordons.merge(now, []Cordon{c})
	}
	return err
}

// Apply merges a message. It costs O(size of the message). Except for relaying, Apply is commutative and idempotent. It
// drops heartbeats of nodes without a record, and heartbeats too far ahead of the known clocks. The node's next
// heartbeat makes up for a dropped heartbeat. No heartbeat follows a leave message, so if Apply drops a leave message,
// another node relays it later, or the lease expires.
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
	if len(s.live) != members { // a changed state or record does not change the clocks
		s.skew.update(now)
	}
	return e
}

// Compose returns messages of at most budget encoded bytes, each for the given number of recipients. Compose
// returns as many messages as the ages of all leases need, and each message contains this node's heartbeat.
// The rest of a message contains cordons, new records, failure reports, rows with news, ages, and the
// remaining rows, in this order of priority. Within each kind, the least sent news comes first. Messages also
// pull leases that are about to expire, because the recipients may know later heartbeats. Compose returns
// nothing if this node has sent all news often enough, or if its own heartbeat does not fit. It costs
// O(nodes).
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
		return nil // the sizes of other rows assume the table digest of this row
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

// NextDeadline returns the earliest time at which Expire can change the live set if no message arrives first.
// It returns false if there is no such time. NextDeadline costs O(nodes) after a lease began and after
// Expire, otherwise O(1).
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

// Sync returns a message with all live nodes, for a joining node or an anti-entropy exchange. The message
// also contains the records and leave messages of recently ended leases. Two kinds of receivers need these:
// nodes that consider an earlier incarnation live, and a new process of an ended node, which must take a
// later incarnation even if its clock was set back. A leave message includes its age, so that all sets forget
// the leave message at about the same time. The message leaves room for Extra.
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

// Challenge returns a message that the caller must send as a packet. The receiver answers it with [Set.Echo].
// The random number must be odd.
func (s *Set) Challenge(now time.Time, random uint64) *Message {
	m := s.message(now)
	m.Challenge = s.present.nonceAt(now, random)
	m.Records = []*Record{s.self.rec}
	return m
}

// Question returns a message that the caller must send as a packet to the address of a member. The answer
// shows whether this node was suspended; see [Effect.Suspended]. The random number must be odd.
func (s *Set) Question(now time.Time, random uint64) *Message {
	m := s.Challenge(now, random)
	m.Challenge ^= ofMember
	return m
}

// Echo returns the answer to a challenge. The answer contains the current cluster time and the nonce. If the
// challenger is live in this set, the answer also contains the challenger's latest heartbeat, and is longer
// than the challenge by at most this heartbeat.
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

// Stamp returns this node's estimate of the cluster time at t, or 0 if t is the zero time.
func (s *Set) Stamp(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return s.time.at(t)
}

// Until returns the duration from now until a cluster time.
func (s *Set) Until(now time.Time, at Stamp) time.Duration { return millis(at - s.time.at(now)) }

// splits is the protocol that tells all nodes when any node last missed a voter. The split policy uses it.
type splits struct {
	*core
	missing bool  // this node is missing a voter
	missed  Stamp // when any node last missed a voter, as far as this node knows; 0 = never
}

// SetMissing sets whether this node is missing a voter, as defined by the split policy. Every message
// contains the latest time at which any node was missing a voter.
func (p *splits) SetMissing(missing bool) { p.missing = missing }

func (p *splits) apply(m *Message) { p.missed = max(p.missed, min(m.Missed, m.Stamp)) }

// misses returns when any node last missed a voter. The argument at is the current cluster time.
func (p *splits) misses(at Stamp) Stamp {
	if p.missing {
		p.missed = at
	}
	return p.missed
}

// Agreed reports since when all other live nodes that have a table agree on the given table digest. It
// returns the time of the oldest among their latest heartbeats, or now if no other node has a table. It
// returns the zero time if the table of a node has a different digest, or if a node has sent no heartbeat
// since any node last missed a voter. Agreed costs O(n).
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
