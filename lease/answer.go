package lease

import (
	"cmp"
	"slices"
	"time"
)

// Answer returns the records and beats of the wanted nodes that are live, as many as
// fit into budget bytes (at least one), and the remaining wants. It returns nil if
// none of the wanted nodes is live.
func (s *Set) Answer(now time.Time, wants []Handle, budget int) (m *Message, rest []Handle) {
	free := budget - messageOverhead
	m = s.message(now)
	s.addBeat(m, s.self, &free, 0)
	for i, h := range wants {
		e := s.known[h]
		if e == nil || e.status != live {
			continue
		}
		if e.recordSize()+maxBeatBytes > free && len(m.Records) > 0 {
			return m, wants[i:]
		}
		m.Records = append(m.Records, e.rec)
		free -= e.recordSize()
		s.addBeat(m, e, &free, 0)
	}
	if len(m.Records) == 0 {
		return nil, nil
	}
	return m, nil
}

// Request returns a message that requests the records of wants, and what this node
// lacks of buckets.
func (s *Set) Request(now time.Time, wants []Handle, buckets []Holding) *Message {
	m := s.message(now)
	m.Wants, m.Buckets = wants, buckets
	return m
}

// AnswerBeats returns messages of at most budget bytes with what m asks for: the beats
// of leases that are about to expire at its sender, if this node knows later ones, and
// records and beats that the sender lacks of buckets. Of a bucket with many more nodes
// than usual, the rest is left out.
func (s *Set) AnswerBeats(now time.Time, m *Message, budget int) []*Message {
	a := answers{set: s, now: now, budget: budget}
	for _, h := range m.Asks[:min(len(m.Asks), maxAsks)] {
		if e := s.known[h]; e != nil && (e.left() || e.status == live && s.age(now, e) < s.params.TTL/2) {
			a.add(e, false)
		}
	}
	for _, held := range s.repairs(now, m) {
		lacks := func(e *entry) bool {
			return held.has(e.handle) && e.spreads() && !slices.Contains(held.Marks, uint32(e.mark()))
		}
		for _, e := range s.others(2*bucketSize, lacks, func(_, _ *entry) int { return 0 }) {
			a.add(e, true)
		}
	}
	return a.messages
}

// repairs returns the buckets of m that are answered: not too many, not too large, and
// not too often, since a request is small and can be sent again by anyone.
func (s *Set) repairs(now time.Time, m *Message) (held []Holding) {
	from := s.known[m.From]
	if len(m.Buckets) == 0 || from == nil || now.Sub(from.repaired) < s.repairAfter()/4 {
		return nil
	}
	from.repaired = now
	smallest := bucketBits(len(s.live))
	for _, h := range m.Buckets[:min(len(m.Buckets), maxRepairs)] {
		same := func(o Holding) bool { return o.BucketID == h.BucketID }
		if h.Bits+1 >= smallest && !slices.ContainsFunc(held, same) {
			held = append(held, h)
		}
	}
	return held
}

// answers collects rows and records in as few messages as possible.
type answers struct {
	set      *Set
	now      time.Time
	budget   int
	messages []*Message
	free     int // in the last one
}

func (a *answers) add(e *entry, record bool) {
	size := maxBeatBytes
	if record {
		size += e.recordSize()
	}
	if len(a.messages) == 0 || size > a.free {
		next, room := a.set.message(a.now), a.budget-messageOverhead
		if a.set.addBeat(next, a.set.self, &room, 0); size > room {
			return // larger than a packet
		}
		a.messages, a.free = append(a.messages, next), room
	}
	m := a.messages[len(a.messages)-1]
	if record {
		m.Records = append(m.Records, e.rec)
		a.free -= e.recordSize()
	}
	a.set.addBeat(m, e, &a.free, 0)
}

// AnswerExpired returns a message for a sender that is not live in this set, and the
// sender's address. Such a sender was replaced by a later incarnation, is too far
// ahead of the cluster's clock, or has expired. No node gossips to it, so without an
// answer it would receive nothing, expire all other nodes, and own everything. A live
// sender is answered if its cluster time is behind. The message has the record of the
// later incarnation, if there is one: if that process is alive, the sender has to stop,
// otherwise to outbid it, at once after a farewell.
// The rest of the budget is filled with beats, freshest first. A sender is answered
// at most twice a second.
func (s *Set) AnswerExpired(now time.Time, sender Handle, behind bool, budget int) (addr string, m *Message) {
	e := s.known[sender]
	if !s.owes(now, e, behind) {
		return "", nil
	}
	e.answered = now
	free := budget - messageOverhead
	m = s.message(now)
	s.addBeat(m, s.self, &free, 0)
	if successor := s.byID[e.rec.ID]; successor != nil && successor != e {
		m.Records = append(m.Records, successor.rec)
		free -= successor.recordSize()
		if successor.spreads() {
			s.addBeat(m, successor, &free, 0)
		}
	}
	isLive := func(e *entry) bool { return e.status == live }
	freshest := func(a, b *entry) int { return cmp.Compare(b.at, a.at) }
	for _, other := range s.others(maxRows, isLive, freshest) {
		if !s.addBeat(m, other, &free, 0) {
			break
		}
	}
	return e.rec.Addr, m
}

// owes reports whether the sender of a message gets an answer from AnswerExpired.
func (s *Set) owes(now time.Time, e *entry, behind bool) bool {
	return e != nil && e != s.self && (e.status != live || behind) && !e.left() &&
		e.rec.Addr != "" && now.Sub(e.answered) >= requestInterval
}
