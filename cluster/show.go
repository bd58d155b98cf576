package cluster

import (
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// show publishes the core's new view as a snapshot.
func (l *loop) show() {
	a := l.agent
	v := l.core.View()
	s := &Snapshot{
		Members:      make([]*Member, len(v.Live.Members)),
		Table:        v.Table,
		State:        v.State,
		Phase:        Phase(v.Phase),
		Waits:        v.Waits,
		Crashed:      v.Live.Crashed,
		Left:         v.Live.Left,
		Ahead:        v.Live.Ahead,
		StreamsAlone: v.StreamsAlone,
		Fenced:       v.Stale,
		Unreachable:  v.Unreachable,
		Holds:        holdsOf(v.Holds, a.env.ClockOffset),
		Spared:       v.Live.Spared,
		lease:        v.Lease,
		divergence:   v.Diverged,
		runsLeft:     v.RunsLeft,
		overdue:      v.Overdue,
		Stats:        l.stats(v.Stats),
	}
	switch {
	case v.Ended:
		s.why = ErrClosed
	case v.Table == nil: // also while the node is fenced, if it had no table before
		s.why = ErrNotReady
	default:
		s.why = ErrNoMembers
	}
	if v.Table != nil {
		s.digest = node.TableDigest(v.Table)
	}
	members := make([]Member, len(v.Live.Members))
	for i := range v.Live.Members {
		members[i] = memberOf(v.Live, &v.Live.Members[i], a.env.ClockOffset)
		s.Members[i] = &members[i]
		if members[i].ID == a.self {
			s.Self = s.Members[i]
		}
	}
	for _, c := range v.Live.Cordoned {
		s.Cordons = append(s.Cordons, Cordon{ID: c.ID, Until: v.Live.Local(c.Until).Add(-a.env.ClockOffset), Reason: c.Reason})
	}
	old, _ := a.snap.Get()
	now := time.Now()
	gone := s.goneSince(old, now)
	s.fillLost(old, gone)
	s.fillDrains(old, now)
	if s.Fenced {
		s.keepMembers(old, v.Gone)
	}
	s.fillParting(old)
	s.fillOwners(old)
	if v.Table != nil && len(v.Table.Nodes()) == 0 && !v.Ended {
		s.why = fmt.Errorf("%w: %s", ErrNoMembers, barred(s.Members))
	}
	s.fillRunners(v.Runners)
	l.history.record(difference{at: now, self: a.self, old: old, s: s, gone: gone, fenced: v.Fenced, ended: v.Ended})
	l.updateScopes(s, now) // update the scopes before a call that waits for s returns
	a.snap.Set(*s)
}

// fillDrains records when each draining member started to drain.
func (s *Snapshot) fillDrains(old *Snapshot, now time.Time) {
	was := old.Members
	for _, m := range s.Members {
		before := next(&was, m.ID)
		if !m.drains() {
			continue
		}
		if m.Drains = now; before != nil && before.Incarnation == m.Incarnation && before.drains() {
			m.Drains = before.Drains
		}
	}
}

// keepMembers adds members of old while the node is fenced, because the node has not received heartbeats from
// all members yet. keepMembers omits members that are known to have ended.
func (s *Snapshot) keepMembers(old *Snapshot, gone map[lease.Incarnation]lease.Reason) {
	live := s.Members
	s.Members = make([]*Member, 0, max(len(live), len(old.Members)))
	for _, m := range old.Members {
		for len(live) > 0 && live[0].ID <= m.ID {
			s.Members, live = append(s.Members, live[0]), live[1:]
		}
		heard := len(s.Members) > 0 && s.Members[len(s.Members)-1].ID == m.ID
		if why := gone[lease.Incarnation{Node: m.ID, Number: m.Incarnation}]; !heard && (why == "" || why == lease.Expired) {
			s.Members = append(s.Members, m)
		}
	}
	s.Members = append(s.Members, live...)
}

// fillOwners finds the member for each candidate of the table. A candidate that is no longer a member keeps
// its last known fields until the next table.
func (s *Snapshot) fillOwners(old *Snapshot) {
	if s.Table == nil {
		return
	}
	s.owners = ownersOf(s.Table, s.Members, old.owners)
}

// ownersOf finds each candidate of t among the live members or, if it is not live, among the last owners.
func ownersOf(t *placement.Table, live, last []*Member) []*Member {
	nodes := t.Nodes()
	owners := make([]*Member, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if owners[i] = next(&live, n.ID); owners[i] == nil {
			owners[i] = next(&last, n.ID)
		}
		if owners[i] == nil { // the member has gone since the table was computed
			owners[i] = &Member{
				Profile: lease.Profile{ID: n.ID, Zone: n.Zone, Weight: n.Weight, Capacity: n.Capacity, Labels: n.Labels},
				Load:    lease.NoLoad,
			}
		}
	}
	return owners
}

// fillRunners finds the members that still run partitions which the table assigns to other members.
func (s *Snapshot) fillRunners(runners map[placement.Partition]lease.NodeID) {
	if len(runners) == 0 || s.Table == nil {
		return
	}
	s.runners = make(map[placement.Partition]*Member, len(runners))
	for p, id := range runners {
		if m, ok := s.Member(id); ok {
			s.runners[p] = m
		}
	}
}

// next returns the member with this ID, or nil, and drops the members before it. Callers must therefore look
// up IDs in ascending order.
func next(sorted *[]*Member, id lease.NodeID) *Member {
	for len(*sorted) > 0 && (*sorted)[0].ID != id && (*sorted)[0].ID < id {
		*sorted = (*sorted)[1:]
	}
	if len(*sorted) == 0 || (*sorted)[0].ID != id {
		return nil
	}
	return (*sorted)[0]
}

// stats combines the counters of the core and the shell.
func (l *loop) stats(k node.Stats) Stats {
	a := l.agent
	watched, watchers := a.gossip.Streams()
	key, sealed := a.gossip.Sealed()
	return Stats{
		CoreStats:       CoreStats(k),
		PacketsSent:     l.sent.packets,
		BytesSent:       l.sent.bytes,
		SendErrors:      l.sent.errors,
		PacketsReceived: a.in.packets.Load(),
		BytesReceived:   a.in.bytes.Load(),
		InboxDropped:    a.in.dropped.Load(),
		GuardDropped:    a.gossip.Dropped(),
		WrongKey:        a.gossip.Rejected(gossip.WrongKey),
		WrongCluster:    a.gossip.Rejected(gossip.WrongCluster),
		NotAllowed:      a.gossip.Rejected(gossip.NotAllowed),
		Requests:        a.requests.Load(),
		Misrouted:       a.misrouted.Load(),
		LogDropped:      a.lines.Dropped(),
		Watched:         watched,
		Watchers:        watchers,
		SealedWith:      key,
		Sealed:          sealed,
		LatestRefusal:   l.refusal,
		LatestRefused:   l.refused,
	}
}
