package lease

import (
	"math"
	"time"
)

// Stamp is a moment in cluster time, in milliseconds. Cluster time is a counter that
// all nodes share: it starts from the wall clock of the first nodes, every node
// advances it with its own monotonic clock, and every message carries it. A node that
// hears a later time takes it over, as in Lamport, "Time, Clocks, and the Ordering of
// Events in a Distributed System" (1978), so all nodes agree on it to within the time
// that a message takes. No wall clock is compared after the start.
//
// The stamp of a beat is when the beat was sent. It orders the beats of a node, and
// says how old they are, however late and by any way they arrive.
type Stamp int64

// Cluster time starts between minStart, the second day of 1970, and maxStart, the year
// 144,683. A member takes over no later time from others. A newcomer does, up to
// maxLearned: it can still join after a member took over maxStart. No row of a live lease
// is from before 0, and maxStamp is readable, so cluster time can always advance.
const (
	minStart   = maxAge
	maxStart   = 1 << 52
	maxLearned = maxStart + maxStart/2
	maxStamp   = 1 << 53
)

// clusterTime is one node's estimate of cluster time.
type clusterTime struct {
	base   Stamp     // cluster time at origin
	origin time.Time // by the monotonic clock
	// provisional means that the estimate is this node's own wall clock: the node has
	// not heard from a cluster yet. Members ignore its messages, so a wrong clock of a
	// newcomer costs nothing.
	provisional bool
}

func startTime(now time.Time) clusterTime {
	wall := min(max(minStart, Stamp(now.UnixMilli())), maxStart)
	return clusterTime{base: wall, origin: now, provisional: true}
}

func (c *clusterTime) at(now time.Time) Stamp {
	return c.base + Stamp(now.Sub(c.origin)/time.Millisecond)
}

// local returns when cluster time was at, by this node's clock.
func (c *clusterTime) local(at Stamp) time.Time { return c.origin.Add(millis(at - c.base)) }

// millis returns s as a duration: at most 292 years, as no duration is longer.
func millis(s Stamp) time.Duration {
	const most = math.MaxInt64 / Stamp(time.Millisecond)
	return time.Duration(min(max(s, -most), most)) * time.Millisecond
}

func stamps(d time.Duration) Stamp { return Stamp(d / time.Millisecond) }

// Establish makes this node's own estimate of cluster time count for others. A node
// that has joined, or found no cluster to join, calls it.
func (s *Set) Establish() {
	if s.time.provisional {
		s.time.provisional = false
		s.recordNews(s.self) // members ignored what this node sent before
		s.self.agesSent = 0
	}
}

// Established reports whether this node's cluster time counts for others.
func (s *Set) Established() bool { return !s.time.provisional }

// accepts decides whether a message counts, and takes over the cluster time of its
// sender. A message far from this node's cluster time is either a recorded one, sent
// again, or this node's estimate is wrong. So the message counts only if it answers
// this node's challenge, or comes from a live member whose time is ahead: cluster time
// never goes back, so no recorded message is ahead of a member. Otherwise the sender is
// challenged, or, if it is behind, told the time.
func (s *Set) accepts(now time.Time, m *Message, e *Effect) bool {
	if m.Provisional && !s.time.provisional {
		return false // its own join brings it the time
	}
	learns := s.time.provisional && !m.Provisional
	ahead := millis(m.Stamp - s.time.at(now))
	switch {
	case s.ofPresent(now, m, ahead):
		if ahead > 0 || learns {
			s.advance(m.Stamp - s.time.at(now))
		}
		if learns {
			s.Establish()
		}
		return true
	case ahead > 0 || learns:
		s.stats.FromFuture++
		if s.readable(m) {
			e.Challenge = s.mayChallenge(now, m)
		}
	default:
		s.stats.FromPast++
		e.Behind = !m.Provisional
	}
	return false
}

// readable reports whether messages would stay readable if this node took over the
// cluster time of m.
func (s *Set) readable(m *Message) bool {
	return m.Stamp <= maxStart || (s.time.provisional && m.Stamp <= maxLearned)
}

// ofPresent reports whether m is near this node's cluster time, or of the present
// nevertheless.
func (s *Set) ofPresent(now time.Time, m *Message, ahead time.Duration) bool {
	if max(ahead, -ahead) <= s.params.TTL {
		return true
	}
	member := ahead > 0 && s.AddrOf(m.From) != "" && !m.Provisional
	return s.readable(m) && (member || s.challenge.answeredBy(now, m))
}

// advance corrects the estimate of cluster time. Within jitter, all leases grow older or
// younger by as much. After a larger step, the leases that this node holds end when they
// would have ended without it, so no lease ends because two clusters meet. But this node
// relays their beats with the stamps that it received: it may have received them in the
// present cluster time, by a recorded message that it took for the present. Only a
// provisional node steps back, and what it heard until then has no known stamp.
func (s *Set) advance(by Stamp) {
	s.time.base += by
	large := millis(max(by, -by)) > s.params.TTL/16
	if large || by < 0 {
		s.self.at += by
		s.self.rowAt += by
	}
	if !large {
		return
	}
	s.oldest = 0
	tooOld := s.self.at - stamps(s.params.TTL) - 1
	for _, e := range s.known {
		if e == s.self || !e.hadLease() {
			continue
		}
		end := e.renewed() + by
		if by < 0 {
			e.at, e.rowAt = max(1, min(e.at+by, tooOld)), max(1, min(e.rowAt+by, tooOld))
		}
		if e.status == live {
			e.grace = end - e.at
		}
	}
}

// challenge is a random number that a message of the present must repeat.
type challenge struct {
	nonce uint64
	since time.Time // the nonce is younger than challengeLife
	sent  time.Time // to anybody
}

// challengeLife is how long an answer to a challenge is awaited.
const challengeLife = 2 * time.Second

func (c *challenge) answeredBy(now time.Time, m *Message) bool {
	return m.Echo != 0 && m.Echo == c.nonce && now.Sub(c.since) <= challengeLife
}

// mayChallenge returns the address of the sender of m, or "" if a challenge was sent
// just now. The address is where the sender's record says it is: a recorded message is
// answered by the present process there, if there is one.
func (s *Set) mayChallenge(now time.Time, m *Message) string {
	if m.From == s.self.handle || (s.challenge.nonce != 0 && now.Sub(s.challenge.sent) < requestInterval) {
		return ""
	}
	return s.addrOfSender(m)
}

// addrOfSender returns the gossip address of a sender that need not be live, or "".
func (s *Set) addrOfSender(m *Message) string {
	for _, r := range m.Records {
		if HandleOf(r.ID, r.Incarnation) == m.From {
			return r.Addr
		}
	}
	if e := s.known[m.From]; e != nil {
		return e.rec.Addr
	}
	return ""
}

// Challenge returns a message that its receiver answers with [Set.Echo]. The nonce must
// be random and not 0.
func (s *Set) Challenge(now time.Time, nonce uint64) *Message {
	c := &s.challenge
	if c.nonce == 0 || now.Sub(c.since) > challengeLife/2 { // answers to the last one may be on their way
		c.nonce, c.since = nonce, now
	}
	c.sent = now
	m := s.message(now)
	m.Challenge = c.nonce
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
