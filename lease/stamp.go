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
// The stamp of a heartbeat is when the heartbeat was sent. It orders the heartbeats of a node, and
// says how old they are, however late and by any way they arrive.
type Stamp int64

// Cluster time starts between minStart, the second day of 1970, and maxStart, the year
// 144,683. A member takes over no later time from others at once; see follow. A newcomer does, up to
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

	window time.Time // when the present window of small steps began
	small  Stamp     // the small steps in it, together
}

func startTime(now time.Time) clusterTime {
	wall := min(max(minStart, Stamp(now.UnixMilli())), maxStart)
	return clusterTime{base: wall, origin: now, provisional: true}
}

func (c *clusterTime) at(now time.Time) Stamp {
	return c.base + Stamp(now.Sub(c.origin)/time.Millisecond)
}

// isSmall reports whether a step of cluster time may make leases older, and counts it. In a
// TTL, two windows at most, such steps come to a sixteenth of the TTL together: the own lease
// has that much of a margin, and a paused node does not see steps.
func (c *clusterTime) isSmall(now time.Time, by Stamp, ttl time.Duration) bool {
	if now.Sub(c.window) >= ttl {
		c.window, c.small = now, 0
	}
	if millis(c.small+max(by, -by)) > ttl/32 {
		return false
	}
	c.small += max(by, -by)
	return true
}

// local returns when cluster time was at, by this node's clock.
func (c *clusterTime) local(at Stamp) time.Time { return c.origin.Add(millis(at - c.base)) }

// Stamp returns the cluster time of an instant, by this node's estimate, and 0 for the zero time.
func (s *Set) Stamp(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return s.time.at(t)
}

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
// sender. A message may be a recorded one, sent again. So it counts only if its sender is
// known to run: the sender is live here, or answered a challenge of this node lately, as
// this message may do. Cluster time never goes back, so what such a sender sent before is
// at least as old as its stamp says. Any other sender is challenged, or, if it is behind,
// learns the time.
func (s *Set) accepts(now time.Time, m *Message, e *Effect) bool {
	if m.Provisional && !s.time.provisional {
		return false // its own join brings it the time
	}
	s.challenges.answer(now, m, s.time.provisional, e)
	learns := s.time.provisional && !m.Provisional
	by := m.Stamp - s.time.at(now)
	if !s.believes(now, m, millis(by), learns, e) {
		return false
	}
	s.lead(m, by, learns, e)
	if by > 0 || learns {
		s.advance(now, by)
	}
	if learns {
		s.Establish()
	}
	return true
}

// lead notes that a message is about to move cluster time, unless its sender has shown why.
func (s *Set) lead(m *Message, by Stamp, learns bool, e *Effect) {
	if learns || e.Suspended || (e.Answered && (s.heldBy(m) || s.overdue(m, millis(by)))) {
		s.led = 0
		return
	}
	s.led += max(0, by)
}

// believes decides whether a message is of the present, and says in e what follows if it
// may not be.
func (s *Set) believes(now time.Time, m *Message, ahead time.Duration, learns bool, e *Effect) bool {
	behind := ahead < -s.params.TTL && !e.Answered
	switch {
	case ahead > s.params.TTL && !s.readable(m):
		s.follow(now, m, e)
	case behind && !learns:
		s.stats.FromPast++
		e.Behind = !m.Provisional
	case s.overdue(m, ahead):
		return s.believesOverdue(now, m, ahead, e)
	case !behind && (e.Answered || s.runs(now, m.From)):
		return true
	case ahead > s.params.TTL:
		s.stats.FromFuture++
		fallthrough
	default:
		e.Challenge = s.addrOfSender(m)
	}
	return false
}

// readable reports whether messages would stay readable if this node took over the
// cluster time of m.
func (s *Set) readable(m *Message) bool {
	return m.Stamp <= maxStart || (s.time.provisional && m.Stamp <= maxLearned)
}

// follow takes over a part of a cluster time that is too late to be taken over at once: up to maxStart, or a
// TTL. Otherwise one absurd message would part its receiver from all others for good: its time goes on, and
// is beyond maxStart when they hear of it.
func (s *Set) follow(now time.Time, m *Message, e *Effect) {
	s.stats.FromFuture++
	switch {
	case s.time.provisional || m.Stamp > maxLearned:
	case e.Answered || s.runs(now, m.From):
		s.advance(now, max(maxStart-s.time.at(now), stamps(s.params.TTL)))
	default:
		e.Challenge = s.addrOfSender(m)
	}
}

// runs reports whether a process is known to run at present. An expired one is not: its
// time may have stepped ahead while it was cut off from here.
func (s *Set) runs(now time.Time, h Handle) bool {
	e := s.known[h]
	return e != nil && e.status == live || within(s.params.TTL, now, s.challenges.runs, h)
}

// SentSince reports whether a message was sent after an instant.
func (s *Set) SentSince(m *Message, at time.Time) bool { return m.Stamp >= s.time.at(at) }

// advance corrects the estimate of cluster time. By small steps, all leases grow older or
// younger by as much. After a larger one, or many small ones, the leases that this node holds end when they
// would have ended without it, so no lease ends because two clusters meet. But this node
// relays their heartbeats with the stamps that it received: some are of the later time already.
// Only a provisional node steps back, and what it heard until then has no known stamp.
func (s *Set) advance(now time.Time, by Stamp) {
	if by == 0 {
		return
	}
	s.time.base += by
	large := !s.time.isSmall(now, by, s.params.TTL)
	if large || by < 0 {
		s.self.at += by
		s.self.rowAt += by
		s.shown += by
	}
	if by < 0 {
		s.cordons = cordons{} // of a time that was not the cluster's
		s.claimed = max(s.claimed, s.self.at-by)
	}
	if !large {
		return
	}
	s.oldest = 0
	if by < 0 {
		s.dropFailureReports()
	}
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
