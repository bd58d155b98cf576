package node

import (
	"sync/atomic"
	"time"
)

// OwnLease is the time until which the own lease holds in the view of the nodes
// that received the latest heartbeat. Any goroutine may read it. A fence replaces
// it by a new one, so that an older [View] never sees its lease come back.
type OwnLease struct {
	until atomic.Int64 // ns after the start of the node; 0 = expired
}

// Holds reports whether the lease holds at a time after the start of the node.
func (l *OwnLease) Holds(sinceStart time.Duration) bool {
	return int64(sinceStart) <= l.until.Load()
}

// renew counts the own lease from a heartbeat. It ends an eighth of the TTL before the
// lease ends for others: they may know the heartbeat by its age alone, rounded by a
// sixteenth; the other sixteenth is for cluster time, which differs between nodes by the
// time that a message takes, and for a small step of it.
func (n *Node) renew(beat time.Time) {
	ttl := n.cfg.LeaseTTL
	n.lease.until.Store(int64(beat.Add(ttl - ttl/8).Sub(n.started)))
}
