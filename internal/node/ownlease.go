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

// OwnLease is the time until which this node's lease holds in the view of nodes that received its latest
// heartbeat. Any goroutine may read it. A fence replaces it with a new one, so that an older [View] never
// sees its lease come back.
type OwnLease struct {
	until atomic.Int64 // ns after the start of the node; 0 = expired
}

// Holds reports whether the lease holds at a time after the start of the node.
func (l *OwnLease) Holds(sinceStart time.Duration) bool {
	return int64(sinceStart) <= l.until.Load()
}

// dropLease ends this node's lease for all views, and begins the next one, which does not hold yet.
func (n *Node) dropLease() {
	n.lease.until.Store(0)
	n.lease = new(OwnLease)
}

// renew renews this node's lease from a heartbeat. The lease ends an eighth of the TTL before it ends for
// others. One sixteenth is for rounding, because others may only know the rounded age of the heartbeat. The
// other sixteenth is for cluster time, which differs between nodes by the time that a message takes, and for
// its small steps.
func (n *Node) renew(heartbeat time.Time) {
	ttl := n.cfg.LeaseTTL
	n.lease.until.Store(int64(heartbeat.Add(ttl - ttl/8).Sub(n.started)))
}

// stall detects that this process was paused (SIGSTOP, a starved machine, a debugger) from the time between
// two turns.
type stall struct {
	ttl             time.Duration
	lastTurn        time.Time
	discardUntil    time.Time // messages that arrive earlier are too old to be believed; zero = not discarding
	holdExpiryUntil time.Time // no lease of another node expires earlier
}

// backlog returns how long it takes to empty the queues after a pause. They are full of packets that claim to
// be new but are as old as the pause.
func (s *stall) backlog() time.Duration { return min(500*time.Millisecond, s.ttl/8) }

// turn notes a turn, and returns the length of the pause before it, or 0. After a pause, the heartbeats of
// others wait in the socket, and the node must read them before it lets leases expire.
func (s *stall) turn(now time.Time) (pause time.Duration) {
	if since := now.Sub(s.lastTurn); since > s.ttl/8 {
		s.holdExpiryUntil = now.Add(s.backlog())
		pause = since
	}
	s.lastTurn = now
	return pause
}

// discard begins to discard messages.
func (s *stall) discard(now time.Time) { s.discardUntil = now.Add(s.backlog()) }

// discarding reports whether a message that arrives now is too old to be believed.
func (s *stall) discarding(now time.Time) bool { return now.Before(s.discardUntil) }

// discarded reports once that the discarding is over.
func (s *stall) discarded(now time.Time) bool {
	if s.discardUntil.IsZero() || now.Before(s.discardUntil) {
		return false
	}
	s.discardUntil = time.Time{}
	return true
}

// clock fences this node while its clock is ahead of the cluster's, and logs other nodes whose clocks are.
type clock struct {
	*Node
	skew skew
}

// clockAhead reports whether this node's clock is so far ahead that others reject its heartbeats.
func (c *clock) clockAhead() bool {
	limit := c.cfg.MaxSkew
	if c.life.clockFenced {
		limit -= limit / 10 // so that a clock near the limit does not flap
	}
	return c.set.ClockAhead() > limit
}

// checkClock fences an active node whose clock is too far ahead.
func (c *clock) checkClock(now time.Time) {
	if c.life.phase == Active && c.holdClock(now) {
		c.life.fenceClock(now)
		c.tables.fence(now, "own clock is ahead of the cluster's")
		c.announce(now)
	}
}

// holdClock holds while this node's clock is too far ahead, and reports whether it is.
func (c *clock) holdClock(now time.Time) (ahead bool) {
	reason := ""
	if ahead = c.clockAhead(); ahead {
		reason = fmt.Sprintf("its clock is %v ahead of the cluster's, and may be %v ahead at most",
			c.set.ClockAhead().Round(time.Millisecond), c.cfg.MaxSkew)
	}
	c.life.holdWhile(now, CauseClockAhead, reason)
	return ahead
}

// aheadOf names the first senders of rejected heartbeats.
func (c *clock) aheadOf() string {
	all := c.set.Ahead()
	var names []string
	for _, id := range slices.Sorted(maps.Keys(all))[:min(5, len(all))] {
		names = append(names, fmt.Sprintf("%s by %v", id, all[id].Round(100*time.Millisecond)))
	}
	return strings.Join(names, ", ")
}

// skew counts heartbeats of others that were rejected because of their timestamps.
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

// asleep finds out that this process was suspended together with its monotonic clock: see lease/present.go.
// Nothing in the process shows that, so it asks a member from time to time. If there is a reason to suspect
// it, it asks many members at once. The node still owns its partitions until a member answers, because
// somebody may only have set the wall clock.
type asleep struct {
	*Node
	rng        *rand.Rand // separate, so that questions don't change other random choices
	ask        time.Time  // when the next question is sent
	until      time.Time  // until when many members are asked; zero = there is no reason to
	misses     int        // questions in a row without an answer
	unanswered int        // rounds of questions in a row that no member has answered
}

const (
	asksInTTL  = 12 // how often a member is asked
	mostMisses = 8  // misses after which questions are not repeated sooner

	fewUnanswered = 2 // rounds that may be lost packets; beyond that, an answer of another cluster counts
)

// wallStepped reports whether the wall clock has advanced more than the monotonic clock since the latest
// turn.
func (s *stall) wallStepped(now time.Time) bool {
	wall := now.Round(0).Sub(s.lastTurn.Round(0))
	return wall-now.Sub(s.lastTurn) > s.ttl/8
}

// wonder begins to ask many members for a moment.
func (a *asleep) wonder(now time.Time) {
	if now.Before(a.until) || a.life.phase == Joining || a.life.phase == Over {
		return
	}
	a.ask, a.until = now, now.Add(a.cfg.LeaseTTL/asksInTTL)
	if a.set.PeerCount() == 0 {
		a.join.next = now // the others may have new addresses
	}
}

// checkAwake asks members whether this node is live in their view.
func (a *asleep) checkAwake(now time.Time) {
	if now.Before(a.ask) || a.life.phase == Joining || a.life.phase == Over {
		return
	}
	a.ask = now.Add(a.cfg.GossipInterval / 4) // unless it is answered by then, because packets get lost
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

// noteAnswer notes that another node has answered a packet.
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

// wake fences this node, because it was suspended for longer than its lease. It tells others at once, because
// they may have been suspended with it. It knows the present time and so knows what is out of date, and joins
// again at once.
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
