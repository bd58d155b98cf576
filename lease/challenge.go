package lease

import "time"

// challenges are how a node finds out which senders run at present. A challenge has a
// random number, which the answer must repeat: no recorded message does.
type challenges struct {
	nonce uint64 // the same for all that are challenged at about the same time
	since time.Time
	last  uint64               // the nonce before, whose answers may be on their way
	runs  map[Handle]time.Time // when a sender answered
}

// challengeLife is for how long a nonce is sent, at least. Its answers count for as long
// after that.
const challengeLife = 2 * time.Second

// answer notes the answer that m may be, and reports whether it is one.
func (c *challenges) answer(now time.Time, m *Message) bool {
	age := now.Sub(c.since)
	present := m.Echo == c.nonce && age <= 2*challengeLife
	last := m.Echo == c.last && age <= challengeLife
	if m.Echo == 0 || (!present && !last) {
		return false
	}
	if len(c.runs) < MaxNodes {
		c.runs[m.From] = now
	}
	return true
}

// answered reports whether a sender has answered within a time.
func (c *challenges) answered(now time.Time, h Handle, within time.Duration) bool {
	at, ok := c.runs[h]
	return ok && now.Sub(at) <= within
}

// forget makes room.
func (c *challenges) forget(now time.Time, ttl time.Duration) {
	for h, at := range c.runs {
		if now.Sub(at) > ttl {
			delete(c.runs, h)
		}
	}
}

// Unconfirmed returns the address for a challenge if a message that came over a stream has
// to wait for its answer, or "". That a stream opens does not show that packets arrive, and
// leases need packets: a node that is heard over streams alone would come and go.
func (s *Set) Unconfirmed(now time.Time, m *Message) (addr string) {
	if m.Settings != s.params.Settings || (m.Provisional && !s.time.provisional) || s.challenges.answered(now, m.From, challengeLife) {
		return ""
	}
	return s.addrOfSender(m)
}

// addrOfSender returns the gossip address of a sender that need not be live, or "": where
// its record says it is. A recorded message is answered by the present process there, if
// there is one.
func (s *Set) addrOfSender(m *Message) string {
	if m.From == s.self.handle {
		return ""
	}
	for _, r := range m.Records {
		if r.Handle() == m.From {
			return r.Addr
		}
	}
	if e := s.known[m.From]; e != nil {
		return e.rec.Addr
	}
	return ""
}

// Nonce returns the number that others have to repeat, for Message.Challenge. It is the
// random one given, which must not be 0, or one that was given lately.
func (s *Set) Nonce(now time.Time, random uint64) uint64 {
	c := &s.challenges
	if age := now.Sub(c.since); c.nonce == 0 || age > challengeLife {
		if c.last = c.nonce; age > 2*challengeLife {
			c.last = 0
		}
		c.nonce, c.since = random, now
	}
	return c.nonce
}

// Challenge returns a message that its receiver answers with [Set.Echo].
func (s *Set) Challenge(now time.Time, random uint64) *Message {
	m := s.message(now)
	m.Challenge = s.Nonce(now, random)
	m.Records = []*Record{s.self.rec}
	return m
}

// Echo returns the answer to a challenge: the present cluster time, with the nonce. It
// is smaller than the challenge.
func (s *Set) Echo(now time.Time, nonce uint64) *Message {
	m := s.message(now)
	m.Echo = nonce
	return m
}
