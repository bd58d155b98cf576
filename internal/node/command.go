package node

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Drain makes the node release its partitions. The node remains a member.
func (n *Node) Drain(now time.Time) {
	n.checkLease(now)
	if n.life.hold(now, Hold{Cause: CauseDraining, Reason: "by command"}) { // Leave calls Drain, even if the node is already draining
		n.announce(now)
	}
	n.tables.publish(now)
}

// DrainAt schedules a time at which all nodes begin to treat this node as draining, without a message at that
// time: see lease/drains.go. At that time, this node drains as if Drain were called. Before that time,
// Undrain cancels the planned drain, and another DrainAt replaces it. A time in the past means now. A joining
// node drains immediately, because it owns nothing and does not know the cluster time yet.
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

// beginDrains starts the scheduled drains whose time has come.
func (n *Node) beginDrains(now time.Time) {
	n.note(n.set.BeginDrains(now))
	if n.set.Drains() && !n.life.holds.has(CauseDraining) && n.life.phase != Over {
		n.life.hold(now, Hold{Cause: CauseDraining, Reason: "as planned"})
		n.announce(now)
	}
}

// Undrain makes the node a candidate for ownership again: see tables.comeBack.
func (n *Node) Undrain(now time.Time) {
	n.checkLease(now)
	n.life.release(CauseDraining)
	if n.set.Self().Drains != 0 {
		n.set.Update(func(r *lease.Record) { r.Drains = 0 })
	}
	n.announce(now)
	n.tables.comeBack(now)
}

// comeBack publishes a new table immediately if this node has no peers and no node owns anything. Otherwise
// the next table is published after the debounce, as after a join, because all other members also compute it
// then. Until then, the other nodes own the partitions of this node, unless they come back as well.
func (t *tables) comeBack(now time.Time) {
	if t.table != nil && !t.life.entering && t.set.PeerCount() == 0 && len(t.table.Nodes()) == 0 {
		t.publish(now)
	}
}

// SetWeight sets the weight immediately and ends a slow start.
func (n *Node) SetWeight(now time.Time, w uint32) {
	n.checkLease(now)
	n.slowStart.stopSlowStart()
	n.slowStart.wanted = w
	n.weight.rebase(now, w)
	if w != n.set.Self().Weight {
		n.slowStart.weigh(w)
		n.announceNews(now)
	}
}

// SetLabels replaces the labels. It returns an error if the new labels make the record invalid. The caller
// must not modify the map afterwards.
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
	n.out.Show = true // the caller waits until the snapshot has the new labels
	return nil
}

// SetKeys announces the fingerprints of this node's gossip keys.
func (n *Node) SetKeys(now time.Time, prints string) {
	n.checkLease(now)
	if prints != n.set.Self().Keys {
		n.set.Update(func(r *lease.Record) { r.Keys = prints })
		n.announceNews(now)
	}
}

// SetSeeds replaces the seeds, and immediately tries to reach other nodes.
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

// Leave sends a leave message, which makes all other nodes end this node's lease.
func (n *Node) Leave(now time.Time) {
	n.checkLease(now)
	n.life.phase = Over
	n.announce(now)
	n.dropLease()
	n.tables.publish(now)
	n.log(Info, "leaving")
}

// Refused reports that the shell has refused a node with different settings.
func (n *Node) Refused(now time.Time, err error) {
	n.stats.NodesRefused++
	if n.refusedLog.allow(now, time.Second) {
		n.log(Warn, "refused a node with other settings", "err", err)
	}
}

// Errors of Node.Cordon.
var (
	ErrNotMember     = errors.New("cluster: no such member")
	ErrLastCandidate = errors.New("cluster: no other member could own anything")
)

// Cordon keeps a member from owning anything for the duration d. The cordon applies on all members. If d is
// 0, Cordon ends an earlier cordon.
func (n *Node) Cordon(now time.Time, id lease.NodeID, d time.Duration, reason string) error {
	n.checkLease(now)
	cordoned := slices.ContainsFunc(n.set.Cordoned(), func(c lease.Cordon) bool { return c.ID == id })
	if !n.set.Knows(id) && (d > 0 || !cordoned) { // a cordon outlives the record of its node
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

// couldDoWithout reports whether any member other than id can own partitions.
func (c *cordons) couldDoWithout(id lease.NodeID) bool {
	v := c.set.View()
	return !v.Spared && slices.ContainsFunc(v.Members, func(m lease.Member) bool { return m.ID != id && m.Candidate() })
}

// hold adds the hold for the cordon of this node, if there is one.
func (c *cordons) hold(v *lease.View, all holds) holds {
	for _, o := range v.Cordoned {
		if o.ID == c.self && !v.Spared {
			all = maps.Clone(all)
			all[CauseCordoned] = Hold{Cause: CauseCordoned, Until: v.Local(o.Until), Reason: cmp.Or(o.Reason, "no reason given")}
		}
	}
	return all
}

// reportCordons logs cordons that have begun or ended.
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
