package node

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Drain makes the node release what it owns. It stays a member.
func (n *Node) Drain(now time.Time) {
	n.checkLease(now)
	if n.life.hold(now, Hold{Cause: CauseDraining, Reason: "by command"}) { // Leave calls Drain, even if the node drains already
		n.announce(now)
	}
	n.tables.publish(now)
}

// DrainAt plans a moment at which all nodes begin to treat this one as draining, without a message at that
// moment: see lease/drains.go. The node itself then drains like with Drain. Until the moment, Undrain cancels
// the plan, and another DrainAt replaces it. A moment in the past means now. A joining node drains at once,
// because it owns nothing and does not know cluster time yet.
func (n *Node) DrainAt(now, at time.Time) {
	if !at.After(now) || n.life.phase == Joining {
		n.Drain(now)
		return
	}
	n.checkLease(now)
	n.set.Update(func(r *lease.Record) { r.Drains = n.set.Stamp(at) })
	n.announceNews(now)
	n.when.urge(now)
	n.log(Info, "drain planned", "in", at.Sub(now))
}

// beginDrains begins the planned drains whose moment has come.
func (n *Node) beginDrains(now time.Time) {
	n.note(n.set.BeginDrains(now))
	if n.set.Drains() && !n.life.holds.has(CauseDraining) && n.life.phase != Over {
		n.life.hold(now, Hold{Cause: CauseDraining, Reason: "as planned"})
		n.announce(now)
	}
}

// Undrain makes the node a candidate for ownership again: see comeBack.
func (n *Node) Undrain(now time.Time) {
	n.checkLease(now)
	n.life.release(CauseDraining)
	if n.set.Self().Drains != 0 {
		n.set.Update(func(r *lease.Record) { r.Drains = 0 })
	}
	n.announce(now)
	n.tables.comeBack(now)
}

// comeBack publishes at once if this node is alone and nobody owns anything. Otherwise the next table comes
// after the debounce, like after a join, because then all other members compute it, too. Until then the
// partitions of this node belong to the others, unless they come back as well.
func (t *tables) comeBack(now time.Time) {
	if t.table != nil && !t.life.entering && t.set.PeerCount() == 0 && len(t.table.Nodes()) == 0 {
		t.publish(now)
	}
}

// SetWeight sets the weight at once and ends a slow start.
func (n *Node) SetWeight(now time.Time, w uint32) {
	n.checkLease(now)
	n.slowStart.stopSlowStart()
	n.slowStart.wanted = w
	if w != n.set.Self().Weight {
		n.slowStart.weigh(w)
		n.announceNews(now)
	}
}

// SetLabels replaces the labels, unless they would make the record invalid. The caller must not change them
// afterwards.
func (n *Node) SetLabels(now time.Time, labels map[string]string) error {
	n.checkLease(now)
	if maps.Equal(labels, n.set.Self().Labels) {
		return nil
	}
	next := *n.set.Self()
	next.Labels = labels
	if err := next.Validate(); err != nil {
		return err
	}
	n.set.Update(func(r *lease.Record) { r.Labels = labels })
	n.announceNews(now)
	n.out.Show = true // the caller returns when the snapshot has them
	return nil
}

// SetKeys announces fingerprints of the keys that this node's gossip uses.
func (n *Node) SetKeys(now time.Time, prints string) {
	n.checkLease(now)
	if prints != n.set.Self().Keys {
		n.set.Update(func(r *lease.Record) { r.Keys = prints })
		n.announceNews(now)
	}
}

// SetSeeds replaces the seeds, and makes the next attempt to reach others at once.
func (n *Node) SetSeeds(now time.Time, addrs, names []string) {
	n.cfg.Seeds, n.cfg.SeedNames = addrs, names
	stays := func(name string) bool { return slices.Contains(names, name) }
	n.join.targets = slices.DeleteFunc(n.join.targets, func(t *target) bool {
		switch t.kind {
		case seedName:
			return !stays(t.addr)
		case seedAddr:
			return !slices.Contains(addrs, t.addr) && !slices.ContainsFunc(t.names, stays)
		case memberAddr:
		}
		return false
	})
	n.join.next = now
	n.join.until = latest(n.join.until, now.Add(max(n.cfg.StartupGrace, leastGrace)))
}

// SetLoad sets the load that the next heartbeat reports.
func (n *Node) SetLoad(units int64) { n.load = units }

// Leave sends a leave message, which ends this node's lease in the view of all nodes.
func (n *Node) Leave(now time.Time) {
	n.checkLease(now)
	n.life.phase = Over
	n.announce(now)
	n.dropLease()
	n.tables.publish(now)
	n.log(Info, "leaving")
}

// Refused reports that the shell refused a node with other settings.
func (n *Node) Refused(now time.Time, err error) {
	n.stats.NodesRefused++
	if n.refusedLog.allow(now, time.Second) {
		n.log(Warn, "refused a node with other settings", "err", err)
	}
}

// Errors of Cordon.
var (
	ErrNotMember     = errors.New("cluster: no such member")
	ErrLastCandidate = errors.New("cluster: no other member could own anything")
)

// Cordon keeps a member from owning anything for d, in the view of all members. If d is 0, it ends an earlier
// cordon.
func (n *Node) Cordon(now time.Time, id lease.NodeID, d time.Duration, reason string) error {
	n.checkLease(now)
	cordoned := slices.ContainsFunc(n.set.Cordoned(), func(c lease.Cordon) bool { return c.ID == id })
	if !n.set.Knows(id) && (d > 0 || !cordoned) { // a cordon lasts longer than what is known of its node
		return ErrNotMember
	}
	if d > 0 && !n.cordons.couldDoWithout(id) {
		return ErrLastCandidate
	}
	if err := n.set.Cordon(now, id, d, reason); err != nil {
		return err
	}
	n.note(true)
	n.when.urge(now)
	n.out.Show = true
	return nil
}

// cordons logs changes of cordons.
type cordons struct {
	*Node
	logged []lease.Cordon // active cordons as last logged
}

// couldDoWithout reports whether a member other than id may own partitions.
func (c *cordons) couldDoWithout(id lease.NodeID) bool {
	v := c.set.View()
	return !v.Spared && slices.ContainsFunc(v.Members, func(m lease.Member) bool { return m.ID != id && m.Candidate() })
}

// hold adds the hold of this node's cordon.
func (c *cordons) hold(v *lease.View, all holds) holds {
	for _, o := range v.Cordoned {
		if o.ID == c.self && !v.Spared {
			all = maps.Clone(all)
			all[CauseCordoned] = Hold{Cause: CauseCordoned, Until: v.Local(o.Until), Reason: cmp.Or(o.Reason, "no reason given")}
		}
	}
	return all
}

// reportCordons logs which cordons have begun or ended.
func (c *cordons) reportCordons(now time.Time) {
	was, all := c.logged, c.set.Cordoned()
	if slices.Equal(all, was) {
		return
	}
	c.logged = all
	for _, e := range all {
		if !slices.Contains(was, e) {
			c.log(Warn, "member cordoned; it owns nothing", "member", e.ID, "for", c.set.Until(now, e.Until), "reason", e.Reason)
		}
	}
	for _, e := range was {
		if !slices.ContainsFunc(all, func(o lease.Cordon) bool { return o.ID == e.ID }) {
			c.log(Info, "cordon ended", "member", e.ID)
		}
	}
}
