package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// plan decides when the change of the live set that happened is published: at
// once if an owner is gone or drains, since its partitions are orphaned; at the
// end of the quiet window if there are only newcomers, this node being one.
func (l *loop) plan(now time.Time) {
	if !l.changed || !l.placing() {
		return
	}
	l.changed = false
	at := now.Add(l.cfg.QuietWindow)
	if !l.entering && l.ownerGone(l.set.View()) {
		at = now
	}
	if l.publish.IsZero() || at.Before(l.publish) {
		l.publish = at
	}
}

// placing reports whether this node computes tables: once it is active, and on
// while its clock keeps it from owning anything, since others still ask it.
func (l *loop) placing() bool {
	return l.phase == PhaseActive || (l.phase == PhaseSettling && l.clockFenced)
}

// ownerGone reports whether a candidate of the table left or drains. One that
// is settling was restarted or fenced, and is about to be back.
func (l *loop) ownerGone(v *lease.View) bool {
	for _, n := range l.table.Nodes() {
		i, ok := slices.BinarySearchFunc(v.Members, n.ID, func(m lease.Member, id lease.NodeID) int {
			return cmp.Compare(m.ID, id)
		})
		if !ok || (!v.Members[i].Candidate() && v.Members[i].State != lease.Settling) {
			return true
		}
	}
	return false
}

// publishNow computes the table of the present live set and publishes it.
func (l *loop) publishNow() {
	l.publish = time.Time{}
	l.changed = false
	view := l.set.View()
	table := l.table
	if l.placing() {
		if table = l.compute(view); table == nil {
			l.publish = l.agent.now().Add(l.cfg.HeartbeatInterval) // it may have been a passing fault
			return
		}
	}
	if table == nil || (!l.placing() && l.phase != PhaseOver) {
		l.show()
		return // nothing is owned, and what is known is not worth telling
	}
	moved := table.Digest() != l.table.Digest()
	news := digestOf(table) != digestOf(l.table)
	if !news {
		table = keepTable(l.table, table)
	}
	old := l.state
	l.table = table
	l.state = events.Next(old, l.agent.self, table, membersOf(view), l.phase == PhaseActive)
	l.entering = l.entering && l.phase != PhaseActive
	if moved {
		l.stats.TableChanges++
	}
	if news {
		l.beat(l.agent.now()) // tells the others the new digest
	}
	l.show()
	l.agent.feed.Publish(l.state)
	l.report(old)
	select {
	case <-l.agent.ready:
	default:
		close(l.agent.ready)
	}
}

// keepTable returns the old table if the candidates are the same, so that
// watchers see at a glance that nothing moved.
func keepTable(old, fresh *placement.Table) *placement.Table {
	if slices.EqualFunc(old.Nodes(), fresh.Nodes(), placement.Node.Equal) {
		return old
	}
	return fresh
}

// compute returns the table over the candidates of v, or nil if the strategy
// failed: then the last good table stays. A coordinator writes down who got what.
func (l *loop) compute(v *lease.View) *placement.Table {
	in := placement.Input{Partitions: l.cfg.Partitions, Strategy: l.cfg.Strategy, Base: l.table}
	for i := range v.Members {
		if m := &v.Members[i]; m.Candidate() {
			in.Nodes = append(in.Nodes, placement.Node{
				ID: m.ID, Weight: m.Weight, Zone: m.Zone, Capacity: m.Capacity, Labels: m.Labels,
			})
		}
	}
	if l.memory != nil {
		in.Memory = l.memory.assigned
	}
	table, err := placement.Compute(in)
	if err == nil {
		if c, ok := l.coordinator(v); ok {
			if next := assignment.Record(table, c); next != l.memory.assigned {
				l.memory.assigned, in.Memory = next, next
				table, err = placement.Compute(in)
			}
		}
	}
	if err != nil {
		l.reportFault(err)
		return nil
	}
	l.fault = ""
	return table
}

// reportFault tells the operator what is wrong with the strategy, which is tried
// again and again, once a minute unless it is something else.
func (l *loop) reportFault(err error) {
	now := l.agent.now()
	if err.Error() == l.fault && now.Sub(l.faultAt) < time.Minute {
		return
	}
	l.fault, l.faultAt = err.Error(), now
	l.log.Error("no new table: the strategy failed; the last one stays", "err", err)
}

// fence publishes that this node owns nothing, whatever the table says.
func (l *loop) fence() {
	l.lease = new(ownLease)
	now := l.agent.now()
	l.renewed(now) // for what comes next; this node owns nothing under it
	if l.memory != nil {
		l.memory.startWaiting(now)
	}
	if l.state == nil {
		return
	}
	old := l.state
	l.state = events.Next(old, l.agent.self, l.table, old.Members, false)
	l.show()
	l.agent.feed.Publish(l.state)
	l.report(old)
}

// show replaces the snapshot. Versions and tables change in publishNow only;
// ages and loads are as fresh as the latest digest.
func (l *loop) show() {
	l.dirty = false
	v := l.set.View()
	s := &Snapshot{
		Members: make([]Member, len(v.Members)), Table: l.table, State: l.state, why: ErrNoMembers,
		Phase: l.phase, lease: l.lease, mine: -1,
	}
	switch {
	case l.ended:
		s.Table, s.why = nil, ErrClosed
	case l.phase == PhaseJoining || l.table == nil: // or it is of the time before a stop
		s.Table, s.why = nil, ErrNotReady
	}
	own := digestOf(l.table)
	for i := range v.Members {
		s.Members[i] = memberOf(&v.Members[i], l.agent.env.ClockOffset)
		if v.Members[i].ID == l.agent.self {
			s.Self = s.Members[i]
		} else if v.Members[i].Table != own && v.Members[i].State != lease.Settling {
			s.drift++
		}
	}
	l.fillOwners(s)
	l.countDrift(l.agent.now(), s)
	s.Stats = l.stats
	s.Stats.Stats = l.set.Stats()
	s.Stats.PacketsReceived = l.agent.in.packets.Load()
	s.Stats.BytesReceived = l.agent.in.bytes.Load()
	s.Stats.InboxDropped = l.agent.in.dropped.Load()
	s.Stats.GuardDropped = l.node.Dropped()
	s.Stats.Requests = l.agent.requests.Load()
	s.Stats.Misrouted = l.agent.misrouted.Load()
	l.agent.snap.Set(*s)
}

// fillOwners looks the candidates of the table up among the members. One that
// has just gone keeps what was last known of it until the next table.
func (l *loop) fillOwners(s *Snapshot) {
	nodes := s.Table.Nodes()
	s.owners = make([]Member, len(nodes))
	old, _ := l.agent.snap.Get()
	for i, n := range nodes {
		if k, ok := findOwner(s.Members, n.ID); ok {
			s.owners[i] = s.Members[k]
		} else if k, ok := findOwner(old.owners, n.ID); ok {
			s.owners[i] = old.owners[k]
		}
		if n.ID == l.agent.self && l.phase == PhaseActive {
			s.mine = i
		}
	}
}

func membersOf(v *lease.View) []lease.Incarnation {
	members := make([]lease.Incarnation, len(v.Members))
	for i := range v.Members {
		members[i] = lease.Incarnation{Node: v.Members[i].ID, Number: v.Members[i].Incarnation}
	}
	return members
}

// report logs what a publication changed.
func (l *loop) report(old *events.State) {
	b := events.Diff(old, l.state)
	for _, id := range b.Left {
		l.log.Info("member left", "member", id)
	}
	for _, id := range b.Joined {
		l.log.Info("member joined", "member", id)
	}
	if len(b.Moved)+len(b.Acquired)+len(b.Released) > 0 {
		l.log.Info("ownership changed", "version", b.Version, "acquired", len(b.Acquired),
			"released", len(b.Released), "moved", len(b.Moved), "partitions", l.cfg.Partitions)
	}
}
