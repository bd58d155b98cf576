package lease

import (
	"slices"
	"time"
)

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

// overdue reports whether the own lease has ended by the time of a message, and not by the own one.
func (s *Set) overdue(m *Message, ahead time.Duration) bool {
	ttl := s.params.TTL
	return !s.time.provisional && m.From != s.self.handle && ahead > ttl/8 && millis(m.Stamp-s.self.at) > ttl-ttl/8
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
	return slices.ContainsFunc(m.Beats, func(b Beat) bool { return b.Handle == s.self.handle })
}
