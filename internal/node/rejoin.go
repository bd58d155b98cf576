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
	n.join.stop()
	n.stall.discard(now)
	n.fence(now)
	n.log(Warn, "fenced: own lease expired (process paused or sends failing); rejoining", "ttl", n.cfg.LeaseTTL)
	n.set.ExpireOthers(now)
	n.join.known = n.set.ExpiredAddrs(n.join.known)
	n.announce(now)
	n.changed = false // the present knowledge is out of date
	n.when.publish = time.Time{}
}

// listenAgain ends the discarding and begins to rejoin. An attempt may wait for a node
// that does not answer; the news by gossip is as good.
func (n *Node) listenAgain(now time.Time) {
	if n.stall.discarded(now) {
		n.rejoin.began, n.rejoin.asked = now, false
		n.join.begin(now, n.cfg.StartupGrace)
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
	b := n.encode(n.set.Request(now, others, nil))
	for _, addr := range n.pick(n.set.Peers(nil), n.cfg.GossipNodes) {
		n.send(Packet{To: addr, Bytes: b})
	}
}
