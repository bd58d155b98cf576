package lease

import (
	"cmp"
	"slices"
	"time"
)

// Reply is a message that answers another one.
type Reply struct {
	To string // a gossip address
	*Message
}

// Replies returns the answers to a message after Apply, in messages of at most budget bytes: the answer to
// its challenge, a request for what this node lacks, what the message pulls, and present news for a sender
// that is not live here or whose cluster time is behind.
//
// A message never both challenges and answers a challenge. If an answer shows this node that it was
// suspended, no other lease holds here, and an echo without the challenger's row would make the challenger
// believe that it was suspended, too.
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

// maxPullRecords is how many records a message can pull.
const maxPullRecords = 100

// Request returns a message that pulls records (the first maxPullRecords of them) and what this node lacks of
// buckets.
func (s *Set) Request(now time.Time, records []Handle, buckets []BucketDigest) *Message {
	m := s.message(now)
	m.PullRecords, m.PullBuckets = records[:min(len(records), maxPullRecords)], buckets
	return m
}

// answer returns messages of at most budget bytes with what m pulls, if the sender of m is live. These have
// later heartbeats of leases that are about to expire at the sender, records and heartbeats that the sender
// lacks of buckets, the records and heartbeats of given nodes, and cordons. answer leaves out what exceeds
// maxDrawn, and most of a bucket with many more nodes than usual (see ages.held).
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

// repairs returns the buckets of m that this node answers, which must not be too many or too large.
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

// answers collects rows and records in as few messages as possible.
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

// addLacking adds what the sender lacks of a bucket.
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

// addReports adds the failure reports against nodes of a bucket that are live at the sender.
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

// room returns the last message, or a new one, that has room for size bytes. It returns nil if there is no
// room.
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

// cordonsFor returns messages of at most budget bytes with all cordons that this node
// knows. With pull, they also ask the receiver for the cordons that this node lacks; see
// [Effect].
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

// maxDrawn is how many messages a node can get by requests at once, and in each second. It is more than a
// node needs from another node when all nodes start at once. It is limited because a request is small and
// anyone who recorded it can send it again.
const maxDrawn = 32

// draws reports whether e may get another message, and counts it.
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
// sender was replaced by a later incarnation, is too far ahead of the cluster's clock, or has expired. No
// node gossips to it, so without an answer it would receive nothing, expire all other nodes, and own
// everything. A live sender gets an answer if its cluster time is behind. The message has the record of the
// later incarnation, if there is one. If that process is alive, the sender must stop. Otherwise the sender
// takes a later incarnation, and does so at once after a leave message. The rest of the budget is filled with
// heartbeats, latest first. A sender gets at most two answers per second.
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

// owes reports whether the sender of a message gets an answer from answerExpired.
func (s *Set) owes(now time.Time, e *entry, behind bool) bool {
	return e != nil && e != s.self && (e.status != live || behind) && !e.left() &&
		e.rec.Addr != "" && (e.rare == nil || now.Sub(e.rare.answered) >= requestInterval)
}
