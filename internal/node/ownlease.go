package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// OwnLease is the time until which this node's lease is valid for the nodes that received its latest heartbeat. Any
// goroutine may read it. A fence replaces the OwnLease, so the lease in an older [View] never becomes valid again.
type OwnLease struct {
	until atomic.Int64 // ns after the start of the node; 0 = expired
}

// Holds reports whether the lease is valid at the given time after the start of the node.
func (l *OwnLease) Holds(sinceStart time.Duration) bool {
	return int64(sinceStart) <= l.until.Load()
}

// dropLease ends this node's lease for all views, and creates the next lease, which is not valid yet.
func (n *Node) dropLease() {
	n.lease.until.Store(0)
	n.lease = new(OwnLease)
}

// renew extends this node's lease from the time of a heartbeat. This node considers its lease ended an eighth
// of the TTL before other nodes do. Half of this margin is for rounding, because other nodes may only know
// the rounded age of the heartbeat. The other half is for the cluster time, which advances in small steps and
// differs between nodes by the time that a message takes.
func (n *Node) renew(heartbeat time.Time) {
	ttl := n.cfg.LeaseTTL
	n.lease.until.Store(int64(heartbeat.Add(ttl - ttl/8).Sub(n.started)))
}

// stall detects from the time between two turns that this process was paused (SIGSTOP, a starved machine, a
// debugger).
type stall struct {
	ttl             time.Duration
	lastTurn        time.Time
	discardUntil    time.Time // messages that arrive earlier are too old to be trusted; zero = not discarding
	holdExpiryUntil time.Time // no lease of another node expires earlier
}

// backlog returns how long it takes to empty the queues after a pause. The packets in these queues look new,
// but are as old as the pause.
func (s *stall) backlog() time.Duration { return min(500*time.Millisecond, s.ttl/8) }

// turn records a turn, and returns the length of the pause before it, or 0 if there was none. After a pause,
// the heartbeats of other nodes are still in the socket, and this node must read them before it lets leases
// expire.
func (s *stall) turn(now time.Time) (pause time.Duration) {
	if since := now.Sub(s.lastTurn); since > s.ttl/8 {
		s.holdExpiryUntil = now.Add(s.backlog())
		pause = since
	}
	s.lastTurn = now
	return pause
}

// discard starts to discard messages.
func (s *stall) discard(now time.Time) { s.discardUntil = now.Add(s.backlog()) }

// discarding reports whether a message that arrives now is too old to be trusted.
func (s *stall) discarding(now time.Time) bool { return now.Before(s.discardUntil) }

// discarded reports, only once, that the node has stopped discarding messages.
func (s *stall) discarded(now time.Time) bool {
	if s.discardUntil.IsZero() || now.Before(s.discardUntil) {
		return false
	}
	s.discardUntil = time.Time{}
	return true
}

// clock fences this node while its clock is ahead of the cluster's, and logs other nodes whose clocks are
// ahead.
type clock struct {
	*Node
	skew skew
}

// clockAhead reports whether this node's clock is so far ahead that other nodes reject its heartbeats.
func (c *clock) clockAhead() bool {
	limit := c.cfg.MaxSkew
	if c.life.clockFenced {
		limit -= limit / 10 // so that a clock near the limit does not fence the node repeatedly
	}
	return c.set.ClockAhead() > limit
}

// checkClock fences an active node if its clock is too far ahead.
func (c *clock) checkClock(now time.Time) {
	if c.life.phase == Active && c.holdClock(now) {
		c.life.fenceClock(now)
		c.tables.fence(now, "own clock is ahead of the cluster's")
		c.announce(now)
	}
}

// holdClock holds the node while its clock is too far ahead, and reports whether the clock is too far ahead.
func (c *clock) holdClock(now time.Time) (ahead bool) {
	reason := ""
	if ahead = c.clockAhead(); ahead {
		reason = fmt.Sprintf("its clock is %v ahead of the cluster's, and may be %v ahead at most",
			c.set.ClockAhead().Round(time.Millisecond), c.cfg.MaxSkew)
	}
	c.life.holdWhile(now, CauseClockAhead, reason)
	return ahead
}

// aheadOf names the first few senders of rejected heartbeats.
func (c *clock) aheadOf() string {
	all := c.set.Ahead()
	var names []string
	for _, id := range slices.Sorted(maps.Keys(all))[:min(5, len(all))] {
		names = append(names, fmt.Sprintf("%s by %v", id, all[id].Round(100*time.Millisecond)))
	}
	return strings.Join(names, ", ")
}

// skew counts heartbeats of other nodes that were rejected because of their timestamps.
type skew struct {
	logged uint64 // count in the last log line
	limit  limiter
}

// warnSkew logs rejected heartbeats, at most once a minute.
func (c *clock) warnSkew(now time.Time) {
	rejected := c.set.Stats().SkewRejected
	if rejected != c.skew.logged && c.skew.limit.allow(now, time.Minute) {
		c.log(Warn, "rejected heartbeats: sender's clock too far ahead",
			"heartbeats", rejected-c.skew.logged, "max_skew", c.cfg.MaxSkew, "senders", c.aheadOf())
		c.skew.logged = rejected
	}
}

// asleep detects that this process was suspended together with its monotonic clock: see lease/present.go. The
// process cannot detect this by itself, so it occasionally asks a member. If it has a reason to suspect a
// suspension, it asks many members at once. The node continues to own its partitions until a member answers,
// because the reason may only be that someone has set the wall clock.
type asleep struct {
	*Node
	rng        *rand.Rand // separate, so that questions don't change other random choices
	ask        time.Time  // when the next question is sent
	until      time.Time  // many members are asked until then; zero = there is no reason to ask
	misses     int        // consecutive questions without an answer
	unanswered int        // consecutive rounds of questions that no member has answered
}

const (
	asksInTTL  = 12 // how many times per TTL a member is asked
	mostMisses = 8  // after this many misses, questions are not repeated sooner

	fewUnanswered = 2 // lost packets may explain this many unanswered rounds; after more, an answer of another cluster counts
)

// wallStepped reports whether the wall clock has advanced more than the monotonic clock since the last turn.
func (s *stall) wallStepped(now time.Time) bool {
	wall := now.Round(0).Sub(s.lastTurn.Round(0))
	return wall-now.Sub(s.lastTurn) > s.ttl/8
}

// wonder makes this node ask many members for a short time.
func (a *asleep) wonder(now time.Time) {
	if now.Before(a.until) || a.life.phase == Joining || a.life.phase == Over {
		return
	}
	a.ask, a.until = now, now.Add(a.cfg.LeaseTTL/asksInTTL)
	if a.set.PeerCount() == 0 {
		a.join.next = now // the other nodes may have new addresses
	}
}

// checkAwake asks members whether they consider this node live.
func (a *asleep) checkAwake(now time.Time) {
	if now.Before(a.ask) || a.life.phase == Joining || a.life.phase == Over {
		return
	}
	a.ask = now.Add(a.cfg.GossipInterval / 4) // unless an answer arrives by then, because packets get lost
	a.unanswered++
	if now.Before(a.until) {
		others := a.set.ExpiredAddrs(a.set.Peers(nil)) // O(nodes)
		for _, lost := range a.join.lost {
			if !slices.Contains(others, lost.addr) {
				others = append(others, lost.addr)
			}
		}
		for range min(a.cfg.GossipNodes, len(others)) {
			a.question(now, others[a.rng.IntN(len(others))])
		}
		return
	}
	if a.misses++; a.misses > mostMisses {
		a.ask = now.Add(a.cfg.LeaseTTL / asksInTTL)
	}
	if peers := a.set.PeerCount(); peers > 0 {
		a.question(now, a.set.Peer(a.rng.IntN(peers)))
	}
}

func (a *asleep) question(now time.Time, addr string) {
	a.send(Packet{To: addr, Bytes: a.encode(a.set.Question(now, a.rng.Uint64()|1))})
}

// noteAnswer records that another node has answered a packet.
func (a *asleep) noteAnswer(now time.Time, e lease.Effect) {
	if !e.OfMember {
		a.reach.heardByPacket()
		return
	}
	a.unanswered = 0
	if a.misses = 0; !now.Before(a.until) {
		a.ask = now.Add(a.cfg.LeaseTTL / asksInTTL)
	}
}

// wake fences this node because it was suspended for longer than its lease. It informs other nodes
// immediately, because they may have been suspended at the same time. This node knows the current cluster
// time again and can tell which messages are out of date, so it rejoins without a delay.
func (a *asleep) wake(now time.Time) {
	if a.life.phase == Joining || a.life.phase == Over {
		return
	}
	a.log(Warn, "fenced: this process was suspended; rejoining", "ttl", a.cfg.LeaseTTL)
	a.rejoin.expel(now, "the process was suspended together with its clock")
	a.stall.discardUntil = now
	a.rejoin.began = now
	a.gossip(now)
	a.when.urge(now)
}
