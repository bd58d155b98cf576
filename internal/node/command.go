package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
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

// announce sends the state that follows from phase and commands.
func (n *Node) announce(now time.Time) {
	state := n.life.state()
	n.rampOrNot(now, state)
	n.set.SetState(state)
	n.announceNews(now)
}

// settle makes a settling node active when it is time.
func (n *Node) settle(now time.Time) {
	if n.life.phase != Settling {
		return
	}
	if n.clockAhead() {
		n.warnClock(now)
		return
	}
	if n.changed {
		n.changed = n.life.clockFenced // then there is a table to keep up to date
		n.life.extend(now)
	}
	if n.life.settle(now, n.othersActive()) {
		n.announce(now)
		n.log(Info, "settled", "state", n.set.State().String())
	}
}

func (n *Node) othersActive() bool {
	for _, m := range n.set.View().Members {
		if m.ID != n.self && (m.State == lease.Active || m.State == lease.Draining) {
			return true
		}
	}
	return false
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
	c := Contacts{Members: n.set.Peers(nil), Expired: n.set.ExpiredAddrs(nil), Fences: n.stats.Fences}
	slices.Sort(c.Members) // the set returns them in no particular order
	slices.Sort(c.Expired)
	return c
}

// Refused reports that the shell refused a node with other settings.
func (n *Node) Refused(now time.Time, err error) {
	n.stats.NodesRefused++
	if n.refusedLog.allow(now, time.Second) {
		n.log(Warn, "refused a node with other settings", "err", err)
	}
}
