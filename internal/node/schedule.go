package node

import (
	"math/rand/v2"
	"time"
)

// schedule contains the times of a node's recurring and planned work.
type schedule struct {
	renewEvery, every time.Duration // between heartbeats, and between rounds of gossip

	heartbeat time.Time // renew this node's lease
	review    time.Time // review the balance, and level; unlike heartbeats, it is not brought forward by news
	gossip    time.Time // send news to a few members
	urgent    int       // rounds of gossip that follow the next one soon
	publish   time.Time // publish a change of the live set; zero = there is none
	losses    time.Time // when a lease first ran out since the last publication; zero = none did
	lost      bool      // a lease ran out since the last plan
	sweep     time.Time // when leases were last expired and forgotten
	expire    time.Time // when to check leases again
	expiry    time.Time // when the next lease expires; zero = to be computed, which costs O(nodes)
}

// heartbeatSent schedules the next heartbeat, with jitter in [0, 1), and an immediate round of gossip.
func (s *schedule) heartbeatSent(now time.Time, jitter float64) {
	s.heartbeat = now.Add(time.Duration((0.9 + 0.2*jitter) * float64(s.renewEvery)))
	s.gossip = now
}

// urgentRounds is the number of rounds of gossip that follow each other quickly after urgent news. A single
// round misses a few members, and the next regular round would be a whole interval later.
const urgentRounds = 3

// urge brings the next rounds of gossip forward, because there is urgent news.
func (s *schedule) urge(now time.Time) {
	s.gossip = earliest(s.gossip, now.Add(s.every/10))
	s.urgent = urgentRounds - 1
}

// gossiped schedules the next round of gossip.
func (s *schedule) gossiped(now time.Time) {
	s.gossip = now.Add(s.every)
	if s.urgent > 0 {
		s.gossip = now.Add(s.every / 5)
		s.urgent--
	}
}

// publishBy schedules a publication, unless an earlier publication is already scheduled.
func (s *schedule) publishBy(at time.Time) {
	if s.publish.IsZero() || at.Before(s.publish) {
		s.publish = at
	}
}

// lose records that a lease ran out.
func (s *schedule) lose(now time.Time) {
	s.lost = true
	if s.losses.IsZero() {
		s.losses = now
	}
}

// due reports whether the time of an event has come. A zero time is never due.
func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// pick returns up to k random elements of all. It reorders all.
func (n *Node) pick(all []string, k int) []string {
	k = min(k, len(all))
	for i := range k { // the beginning of a Fisher-Yates shuffle
		j := i + n.rng.IntN(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:k]
}

// deck is a set of addresses from which a caller draws a few at random. The addresses are not copied, because a large
// cluster has thousands of them.
type deck struct {
	size  int
	card  func(i int) string // the card at place i before any draw
	moved map[int]int        // the card at each place that a draw has changed
}

// draw swaps the i-th card with a random card at or after position i, and returns the card that is now at i.
func (d *deck) draw(rng *rand.Rand, i int) string {
	if d.moved == nil {
		d.moved = make(map[int]int)
	}
	j := i + rng.IntN(d.size-i)
	drawn := d.at(j)
	d.moved[j] = d.at(i)
	d.moved[i] = drawn
	return d.card(drawn)
}

func (d *deck) at(place int) int {
	if card, moved := d.moved[place]; moved {
		return card
	}
	return place
}

// jitter returns d multiplied by a random factor between least and most.
func (n *Node) jitter(d time.Duration, least, most float64) time.Duration {
	return time.Duration((least + n.rng.Float64()*(most-least)) * float64(d))
}
