package node

import (
	"time"
)

// Drain makes the node give up what it owns. It stays a member.
func (n *Node) Drain(now time.Time) {
	n.checkLease(now)
	if !n.life.draining { // Leave drains, even a node that is draining
		n.life.draining = true
		n.announce(now)
		n.log(Info, "draining")
	}
	n.publish(now)
}

// Undrain makes the node a candidate for ownership again.
func (n *Node) Undrain(now time.Time) {
	n.checkLease(now)
	n.life.draining = false
	n.announce(now)
	n.log(Info, "undraining")
	n.publish(now)
}

// SetWeight sets the weight at once and ends a ramp.
func (n *Node) SetWeight(now time.Time, w uint32) {
	n.checkLease(now)
	n.stopRamp()
	n.ramp.wanted = w
	if w != n.set.Self().Weight {
		n.weigh(w)
		n.announceNews(now)
	}
}

// SetLoad sets the load that the next heartbeat reports.
func (n *Node) SetLoad(units int64) { n.load = units }

// Leave says farewell: it ends the own lease in the view of all nodes.
func (n *Node) Leave(now time.Time) {
	n.checkLease(now)
	n.life.phase = Over
	n.announce(now)
	n.lease = new(OwnLease)
	n.publish(now)
	n.log(Info, "leaving")
}

// Refused reports that the shell refused a node with other settings.
func (n *Node) Refused(now time.Time, err error) {
	n.stats.NodesRefused++
	if n.refusedLog.allow(now, time.Second) {
		n.log(Warn, "refused a node with other settings", "err", err)
	}
}
