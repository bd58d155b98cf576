package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// rejoin is the way back of a node after its own lease expired, from the moment when
// it believes messages again.
type rejoin struct {
	quiet time.Duration
	began time.Time // zero = not rejoining
	asked bool      // for the members that it misses
}

// enterAt returns when gossip alone has brought enough news to enter by: some time
// after the rejoin began, and after the node asked for missing members.
func (r *rejoin) enterAt() time.Time {
	wait := 4 * r.quiet
	if r.asked {
		wait += r.quiet
	}
	return r.began.Add(wait)
}

// checkLease fences this node if its own lease has expired: the process was paused,
// or could send nothing, for so long that others have taken over. The node owns
// nothing, knows nothing, and has to join again.
func (n *Node) checkLease(now time.Time) {
	n.stall.turn(now)
	if n.life.phase == Over || n.lease.Holds(now.Sub(n.started)) {
		return
	}
	n.life.fence()
	n.stall.discard(now)
	n.fence(now)
	n.log(Warn, "fenced: own lease expired (process paused or sends failing); rejoining", "ttl", n.cfg.LeaseTTL)
	n.set.ExpireOthers(now)
	n.announce(now)
	n.changed = false // the present knowledge is out of date
	n.when.publish = time.Time{}
}

// listenAgain ends the discarding and asks the shell to rejoin. The attempt of the
// shell may wait for a node that does not answer; the news by gossip is as good.
func (n *Node) listenAgain(now time.Time) {
	if n.stall.discarded(now) {
		n.rejoin.began, n.rejoin.asked = now, false
		n.out.Rejoin = true
	}
	if n.rejoin.began.IsZero() || now.Before(n.rejoin.enterAt()) || len(n.set.Peers(nil)) == 0 {
		return
	}
	// Heartbeats that came while messages were discarded are relayed a few times only:
	// their senders would be missing until their next heartbeat.
	if missing := n.set.ExpiredHandles(); !n.rejoin.asked && len(missing) > 0 {
		n.rejoin.asked = true
		n.askFor(now, missing)
		return
	}
	n.enter(now, true)
}

// askFor asks a few members for the records of others.
func (n *Node) askFor(now time.Time, others []lease.Handle) {
	b := n.encode(n.set.Request(now, others[:min(len(others), maxWants)], nil))
	for _, addr := range n.pick(n.set.Peers(nil), n.cfg.GossipNodes) {
		n.send(Packet{To: addr, Bytes: b})
	}
}

// Joined reports the end of an attempt to join: a seed answered, or none did within
// the grace. Fences is the count of [Node.Contacts] at the begin of the attempt: what
// an attempt learned before a fence is out of date.
func (n *Node) Joined(now time.Time, fences uint64, answered bool) {
	n.checkLease(now)
	if n.stats.Fences == fences {
		n.enter(now, answered)
	}
}

// enter makes the node a member that settles.
func (n *Node) enter(now time.Time, answered bool) {
	if n.life.phase != Joining {
		return
	}
	n.set.Establish()
	n.log(Info, "joined", "seed_answered", answered, "members", len(n.set.View().Members))
	n.life.joined(now, !n.othersOwn())
	n.rejoin.began = time.Time{}
	n.changed = true
	n.out.Show = true // after the start, the caller wants to see who answered
}

// Contacts are the addresses that the shell joins.
type Contacts struct {
	Members []string // live
	Expired []string // lease expired, not forgotten yet
	Fences  uint64   // for Joined
}

// Contacts returns the addresses that this node knows.
func (n *Node) Contacts(now time.Time) Contacts {
	n.checkLease(now)
	return Contacts{Members: n.set.Peers(nil), Expired: n.set.ExpiredAddrs(nil), Fences: n.stats.Fences}
}
