package lease

import (
	"maps"
	"slices"
	"time"
)

// challenges are how a node finds out which senders run at present. A challenge has a
// random number, which the answer must repeat: no recorded message does.
type challenges struct {
	nonce uint64 // the same for all that are challenged at about the same time
	since time.Time
	last  uint64 // the nonce before, whose answers may be on their way

	runs     map[Handle]time.Time // when a sender answered
	bothWays map[Handle]time.Time // when a sender answered what came in a packet
}

// overStream tells the nonce of a stream from that of a packet. The answer to a stream is a
// packet, too, but shows the way of packets from its sender alone.
const overStream = 1 << 63

// challengeLife is for how long a nonce is sent, at least. Its answers count for as long
// after that.
const challengeLife = 2 * time.Second

// answer notes in e the answer that m may be. An answer to a stream does not show a newcomer that
// a sender runs: the newcomer would pass on a cluster time of which it is no part.
func (c *challenges) answer(now time.Time, m *Message, newcomer bool, e *Effect) {
	e.OfMember = c.counts(now, m.Echo^ofMember)
	e.BothWays = c.counts(now, m.Echo) || e.OfMember
	e.Arrives = e.BothWays || c.counts(now, m.Echo^overStream)
	e.Answered = e.BothWays || (e.Arrives && !newcomer)
	if !e.OfMember { // that says whether this node was suspended, and is no reason to believe later messages
		c.note(now, m.From, e)
	}
}

// counts reports whether a number that was repeated is a nonce of this node.
func (c *challenges) counts(now time.Time, nonce uint64) bool {
	age := now.Sub(c.since)
	return nonce != 0 && ((nonce == c.nonce && age <= 2*challengeLife) || (nonce == c.last && age <= challengeLife))
}

// note notes when a sender has answered.
func (c *challenges) note(now time.Time, from Handle, e *Effect) {
	if e.Answered && len(c.runs) < MaxNodes {
		c.runs[from] = now
	}
	if e.BothWays && len(c.bothWays) < MaxNodes {
		c.bothWays[from] = now
	}
}

// within reports whether a sender has answered within a time.
func within(d time.Duration, now time.Time, answers map[Handle]time.Time, h Handle) bool {
	at, ok := answers[h]
	return ok && now.Sub(at) <= d
}

// forget makes room.
func (c *challenges) forget(now time.Time, ttl time.Duration) {
	for _, answers := range []map[Handle]time.Time{c.runs, c.bothWays} {
		maps.DeleteFunc(answers, func(_ Handle, at time.Time) bool { return now.Sub(at) > ttl })
	}
}

// Unconfirmed returns the record of a message's sender, at whose address it is challenged, if a message that
// came over a stream has to wait for an answer that shows that packets arrive both ways, or nil. That a
// stream opens does not show it, and leases need packets: a node that is heard over streams alone would come
// and go. A newcomer is not challenged: its own join brings it the time.
func (s *Set) Unconfirmed(now time.Time, m *Message) (sender *Record, newcomer bool) {
	if m.Settings != s.params.Settings || within(challengeLife, now, s.challenges.bothWays, m.From) {
		return nil, false
	}
	return s.sender(m), m.Provisional && !s.time.provisional
}

// addrOfSender returns the gossip address of a sender that need not be live, or "": where
// its record says it is. A recorded message is answered by the present process there, if
// there is one.
func (s *Set) addrOfSender(m *Message) string {
	if r := s.sender(m); r != nil {
		return r.Addr
	}
	return ""
}

// sender returns the record of a sender that need not be live, or nil.
func (s *Set) sender(m *Message) *Record {
	if m.From == s.self.handle {
		return nil
	}
	for _, r := range m.Records {
		if r.Handle() == m.From {
			return r
		}
	}
	if e := s.known[m.From]; e != nil {
		return e.rec
	}
	return nil
}

// nonce returns the number that others have to repeat. It is the random one given, which must
// be odd, or one that was given lately.
func (s *Set) nonce(now time.Time, random uint64) uint64 {
	c := &s.challenges
	if age := now.Sub(c.since); c.nonce == 0 || age > challengeLife {
		if c.last = c.nonce; age > 2*challengeLife {
			c.last = 0
		}
		c.nonce, c.since = random, now
	}
	return c.nonce
}

// StreamNonce returns the Message.Challenge of a message for a stream: the answer shows that
// its sender runs, and not that packets reach it. The random number must be odd.
func (s *Set) StreamNonce(now time.Time, random uint64) uint64 {
	return s.nonce(now, random) ^ overStream
}

// Challenge returns a message for a packet that its receiver answers with [Set.Echo]. The
// random number must be odd.
func (s *Set) Challenge(now time.Time, random uint64) *Message {
	m := s.message(now)
	m.Challenge = s.nonce(now, random)
	m.Records = []*Record{s.self.rec}
	return m
}

// EchoTo returns the address to which [Set.Echo] is sent in answer to a message, or "".
func (s *Set) EchoTo(m *Message) string {
	if m.Challenge == 0 || m.Settings != s.params.Settings {
		return ""
	}
	return s.addrOfSender(m)
}

// Echo returns the answer to the challenge in a message: the present cluster time, with the nonce, and the
// latest heartbeat of the challenger if its lease is live here: at most that heartbeat longer than the challenge.
func (s *Set) Echo(now time.Time, challenge *Message) *Message {
	m := s.message(now)
	m.Echo = challenge.Challenge
	if e := s.known[challenge.From]; e != nil && e.status == live && e != s.self {
		room := maxHeartbeatBytes
		s.addHeartbeat(m, e, &room, 0)
	}
	return m
}

// A process that is suspended together with its monotonic clock, as a virtual machine is, does not
// notice. Others end its lease, own what it owned, and forget it. When the process goes on, its lease
// holds by its own clock, and cluster time is ahead of it.
//
// Cluster time is also ahead where a cluster meets another one that began with a later time. Its nodes
// did not sleep, and keep their leases. Both look alike to a node that only takes over the later time. So
// a message counts, by whose time the own lease has ended, only if its sender answers a challenge.
// The answer says whether the sender holds the challenger for live:
//
//   - A member that does has met another cluster itself: this node follows it.
//   - A member that does not has seen the lease of this node end: this node was suspended.
//   - Any other sender may be of another cluster, or have joined in the meantime. It is believed after the
//     members have had time to answer.
//
// Only answers with a random number of this node decide, so recorded messages end no lease.

// ofMember tells the nonce of a question that was sent to the address of a member from others. The
// process that answers there may be a later one.
const ofMember = 1 << 62

// Question returns a message for a packet to the address of a member. The answer shows whether this
// node was suspended: [Effect.Suspended]. The random number must be odd.
func (s *Set) Question(now time.Time, random uint64) *Message {
	m := s.Challenge(now, random)
	m.Challenge ^= ofMember
	return m
}

// Overslept reports whether a message of another cluster shows that this node was suspended: its sender has answered a
// [Set.Question] at the address of a member, and the own lease has ended by its time. All members there have been
// restarted meanwhile. The clocks of a cluster that took over the address of a member say about the same as those of
// this one, if this node was awake.
func (s *Set) Overslept(now time.Time, m *Message) bool {
	return m.Settings == s.params.Settings && !m.Provisional && s.challenges.counts(now, m.Echo^ofMember) &&
		s.overdue(m, millis(m.Stamp-s.time.at(now)))
}

// overdue reports whether the own lease has ended by the time of a message, and not by the clock of this
// node. Packets that have waited for a suspended node lead it ahead step by step, and its lease with it.
func (s *Set) overdue(m *Message, ahead time.Duration) bool {
	ttl := s.params.TTL
	return !s.time.provisional && m.From != s.self.handle &&
		ahead+millis(s.led) > ttl/8 && millis(m.Stamp-s.self.at+s.led) > ttl-ttl/8
}

// believesOverdue decides whether a message counts by whose time the own lease has ended, and says in e what
// follows if it does not.
func (s *Set) believesOverdue(now time.Time, m *Message, ahead time.Duration, e *Effect) bool {
	if e.Answered && s.explains(now, m, e) {
		return true
	}
	delete(s.challenges.runs, m.From) // or its older messages would make it a member
	delete(s.challenges.bothWays, m.From)
	sender := s.known[m.From]
	e.Overdue = e.Overdue || (sender != nil && sender.status == live)
	if !e.Overdue && ahead > s.params.TTL {
		s.stats.FromFuture++
	}
	e.Challenge = s.addrOfSender(m)
	return false
}

// explains decides whether an answer counts by whose time the own lease has ended, and whether this
// node was suspended.
func (s *Set) explains(now time.Time, m *Message, e *Effect) bool {
	sender := s.known[m.From]
	if e.OfMember || (sender != nil && sender.hadLease() && sender.status != retired) {
		e.Suspended = !s.heldBy(m)
		return true
	}
	if s.census.reachable == 0 {
		return true
	}
	if now.Sub(s.doubted) > 2*s.params.TTL {
		s.doubted = now
	}
	e.Overdue = true
	return now.Sub(s.doubted) >= s.params.TTL/8
}

// heldBy reports whether the sender of an answer holds this node for live.
func (s *Set) heldBy(m *Message) bool {
	return slices.ContainsFunc(m.Heartbeats, func(b Heartbeat) bool { return b.Handle == s.self.handle })
}
