package lease

import (
	"cmp"
	"slices"
	"time"
)

// Reply is a message that answers another message.
type Reply struct {
	To string // a gossip address
	*Message
}

// Replies returns the answers to a message after Apply, in messages of at most budget bytes. Replies answers
// a challenge, sends what the message pulls, and requests what this node lacks. If the sender is not live in
// this set or its cluster time is behind, Replies also sends it current news.
//
// No message contains both a challenge and the answer to a challenge. If a message could contain both, two
// suspended nodes could mislead each other. A node that learns that it was suspended has no other live node
// in its set. Its echo would lack the challenger's row, so the challenger would wrongly conclude that it was
// suspended, too.
func (s *Set) Replies(now time.Time, m *Message, e Effect, budget int) (replies []Reply) {
	if to := s.EchoTo(m); to != "" {
		replies = append(replies, Reply{to, s.Echo(now, m)})
	}
	if e.Counts {
		to := s.AddrOf(m.From)
		if len(e.pullRecords)+len(e.pullBuckets) > 0 {
			replies = append(replies, Reply{to, s.Request(now, e.pullRecords, e.pullBuckets)})
		}
		if e.pullCordons {
			for _, part := range s.cordonsFor(now, budget, true) {
				replies = append(replies, Reply{to, part})
			}
		}
		for _, part := range s.answer(now, m, budget) {
			replies = append(replies, Reply{to, part})
		}
	}
	if to, present := s.answerExpired(now, m.From, e.behind, budget); present != nil {
		replies = append(replies, Reply{to, present})
	}
	return replies
}

// maxPullRecords is the maximum number of records that a message can pull.
const maxPullRecords = 100

// Request returns a message that pulls the first maxPullRecords of the given records, and everything in the
// given buckets that this node lacks.
func (s *Set) Request(now time.Time, records []Handle, buckets []BucketDigest) *Message {
	m := s.message(now)
	m.PullRecords, m.PullBuckets = records[:min(len(records), maxPullRecords)], buckets
	return m
}

// answer returns what m pulls, in messages of at most budget bytes, if the sender of m is live. A message can
// pull heartbeats of leases that are about to expire at the sender, the missing part of a bucket, individual
// nodes, and cordons. answer sends at most maxDrawn messages, and only a small part of a bucket with many
// more nodes than usual (see ages.held).
func (s *Set) answer(now time.Time, m *Message, budget int) []*Message {
	a := answers{set: s, now: now, budget: budget, to: s.known[m.From]}
	if a.to == nil || a.to.status != live {
		return nil
	}
	a.addLater(m.PullLeases[:min(len(m.PullLeases), maxPullLeases)])
	for _, held := range s.repairs(m) {
		a.addLacking(held)
		a.addReports(held)
	}
	for _, h := range m.PullRecords[:min(len(m.PullRecords), maxPullRecords)] {
		if e := s.known[h]; e != nil && e.status == live {
			a.add(e, true)
		}
	}
	var messages []*Message
	for _, d := range a.drafts {
		messages = append(messages, d.Message)
	}
	if m.PullCordons && m.Cordoned != s.cordons.digest {
		for _, part := range s.cordonsFor(now, budget, false) {
			if a.to.draws(part.Stamp) {
				messages = append(messages, part)
			}
		}
	}
	return messages
}

// repairs returns the bucket digests of m that this node answers. It leaves out digests that are too large,
// and digests beyond the maximum number.
func (s *Set) repairs(m *Message) (held []BucketDigest) {
	smallest := bucketBits(len(s.live))
	for _, h := range m.PullBuckets[:min(len(m.PullBuckets), maxRepairs)] {
		same := func(o BucketDigest) bool { return o.BucketID == h.BucketID }
		if h.Bits+1 >= smallest && !slices.ContainsFunc(held, same) {
			held = append(held, h)
		}
	}
	return held
}

// answers packs rows and records into as few messages as possible.
type answers struct {
	set    *Set
	now    time.Time
	budget int
	to     *entry
	drafts []*draft
}

// addLater adds the heartbeats of leases that are about to expire at the sender.
func (a *answers) addLater(leases []Handle) {
	for _, h := range leases {
		e := a.set.known[h]
		if e != nil && (e.left() || e.status == live && a.set.age(a.now, e) < a.set.params.TTL/2) {
			a.add(e, false)
		}
	}
}

// addLacking adds everything in a bucket that the sender lacks.
func (a *answers) addLacking(held BucketDigest) {
	from, to := a.set.bucket(held.BucketID)
	lacking := slices.Clone(a.set.live[from:to])
	for _, e := range a.set.departed() {
		if held.has(e.handle) {
			lacking = append(lacking, e)
		}
	}
	lacking = slices.DeleteFunc(lacking, func(e *entry) bool {
		return e == a.set.self || slices.Contains(held.Hashes, uint32(e.hash()))
	})
	slices.SortFunc(lacking, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	for _, e := range lacking[:min(len(lacking), 2*bucketSize)] {
		a.add(e, true)
	}
}

// addReports adds the failure reports against nodes of a bucket that the sender considers live.
func (a *answers) addReports(held BucketDigest) {
	for _, e := range a.set.reported {
		if !e.crashed || !slices.Contains(held.Hashes, uint32(e.hash())) {
			continue
		}
		if d := a.room(maxReporters * maxFailureReportBytes); d != nil {
			a.set.failures.addAgainst(d, e)
		}
	}
}

func (a *answers) add(e *entry, record bool) {
	size := maxHeartbeatBytes
	if record {
		size += e.recordSize()
	}
	if d := a.room(size); d != nil {
		if record {
			d.record(e)
		}
		d.heartbeat(e)
	}
}

// room returns the last message if it has room for size bytes, or else a new message. It returns nil if size
// exceeds a packet or the sender has reached its limit.
func (a *answers) room(size int) *draft {
	if n := len(a.drafts); n > 0 && size <= a.drafts[n-1].free {
		return a.drafts[n-1]
	}
	next := a.set.draft(a.now, a.budget)
	if next.heartbeat(a.set.self); size > next.free {
		return nil // larger than a packet
	}
	if !a.to.draws(next.Stamp) {
		return nil
	}
	a.drafts = append(a.drafts, next)
	return next
}

// cordonsFor returns all cordons that this node knows, in messages of at most budget bytes. If pull is set,
// the messages also request the cordons that this node lacks.
func (s *Set) cordonsFor(now time.Time, budget int, pull bool) (messages []*Message) {
	d := s.draft(now, budget)
	for i := range s.cordons.all {
		c := &s.cordons.all[i]
		if c.size() > d.free && len(d.Cordons) > 0 {
			messages = append(messages, d.Message)
			d = s.draft(now, budget)
		}
		if c.size() <= d.free {
			d.Cordons = append(d.Cordons, *c)
			d.free -= c.size()
		}
	}
	d.PullCordons = pull
	return append(messages, d.Message)
}

// maxDrawn is the maximum number of messages that a node can request in a burst, and the maximum per second after that.
// A node needs fewer from another node even when all nodes start at the same time. The limit exists because requests
// are small and an attacker can replay them.
const maxDrawn = 32

// draws reports whether e is within its limit of requested messages. If so, draws counts one more message.
func (e *entry) draws(at Stamp) bool {
	const second = Stamp(time.Second / time.Millisecond)
	m := e.more()
	m.drawn = min(max(m.drawn, at-second), at)
	if m.drawn > at-second/maxDrawn {
		return false
	}
	m.drawn += second / maxDrawn
	return true
}

// answerExpired returns a message for a sender that is not live in this set, and the sender's address. Such a
// sender was replaced by a later incarnation, has a clock too far ahead of the cluster's clock, or has
// expired. No node gossips to the sender, so without an answer it would receive nothing, expire all other
// nodes, and own everything. A live sender gets an answer if its cluster time is behind. The answer contains
// the record of the later incarnation, if there is one. If the process of the later incarnation is alive, the
// sender must stop. Otherwise the sender takes an even later incarnation, immediately if the later
// incarnation has left. Heartbeats fill the rest of the budget, latest first. A sender gets at most two
// answers per second.
func (s *Set) answerExpired(now time.Time, sender Handle, behind bool, budget int) (addr string, m *Message) {
	e := s.known[sender]
	if !s.owes(now, e, behind) {
		return "", nil
	}
	e.more().answered = now
	d := s.draft(now, budget)
	d.heartbeat(s.self)
	s.failures.addAgainst(d, e)
	if successor := s.latest(e.rec.ID); successor != nil && successor != e {
		d.record(successor)
		if successor.spreads() {
			d.heartbeat(successor)
		}
	}
	s.spread.begin()
	for i, v := range s.vitals {
		if v != s.self.vitals {
			s.spread.offer(candidate{at: v.at, handle: s.order[i], place: i})
		}
	}
	for _, c := range s.spread.candidates {
		if !d.heartbeat(s.live[c.place]) {
			break
		}
	}
	return e.rec.Addr, d.Message
}

// owes reports whether answerExpired answers the sender of a message.
func (s *Set) owes(now time.Time, e *entry, behind bool) bool {
	return e != nil && e != s.self && (e.status != live || behind) && !e.left() &&
		e.rec.Addr != "" && (e.rare == nil || now.Sub(e.rare.answered) >= requestInterval)
}
