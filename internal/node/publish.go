package node

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// plan decides when a change of the live set is published:
//   - at once if an owner left or drains, because its partitions are orphaned, or if any member
//     left, because rooms may be pinned to it;
//   - a moment later if the failure of a member was confirmed;
//   - if a lease ran out, when no more leases are about to run out;
//   - after the debounce if there are only newcomers, this node perhaps among them.
func (n *Node) plan(now time.Time) {
	if !n.changed || !n.life.publishes() {
		return
	}
	ranOut := n.when.lost
	n.changed, n.when.lost = false, false
	if n.life.entering || !n.set.Lost() || (!n.ownerGone() && !n.memberLeft()) {
		n.when.publishBy(now.Add(n.cfg.Debounce))
		return
	}
	n.when.publishBy(now)
	if !ranOut && !n.mayBeCutOff(now) {
		n.when.losses = time.Time{} // a leave waits for nothing, unless it is this node that is lost, perhaps
	}
}

// ownerGone reports whether a candidate of the table left or drains. A candidate that
// is settling was restarted or fenced, and is about to be back.
func (n *Node) ownerGone() bool {
	owners := n.table.Nodes() // by id, as the states
	for r, state := range n.set.States {
		switch {
		case len(owners) == 0 || owners[0].ID < r.ID:
			return len(owners) > 0
		case owners[0].ID > r.ID:
			continue
		case state != lease.Settling && (state != lease.Active || r.Weight == 0):
			return true
		}
		owners = owners[1:]
	}
	return len(owners) > 0
}

// memberLeft reports whether a member of the state that was published last has left in order.
func (n *Node) memberLeft() bool {
	return n.state != nil && slices.ContainsFunc(n.state.Members, n.set.Left)
}

// moreLosses reports whether a change that is due waits for more leases to run out, so that
// nodes that crashed or were cut off together make one new table. All of these sent their
// last heartbeats within one interval, by stamps that are rounded. So the change waits
// while there is a lease that is older than any of a node that went on, and for an interval
// at most. It waits for nothing after a single crash.
func (n *Node) moreLosses(now time.Time) bool {
	if !n.when.losses.IsZero() && n.mayBeCutOff(now) {
		return true // it is this node that is lost, perhaps
	}
	interval := n.cfg.HeartbeatInterval*11/10 + n.cfg.LeaseTTL/16
	if n.when.losses.IsZero() || n.life.entering || now.Sub(n.when.losses) >= interval {
		return false
	}
	return n.set.OldestAge(now) > n.cfg.LeaseTTL-interval
}

// publish computes the table of the present live set and publishes it.
func (n *Node) publish(now time.Time) {
	n.when.publish, n.when.losses, n.watch.confirmed = time.Time{}, time.Time{}, time.Time{}
	n.changed = false
	view := n.set.View()
	table := n.table
	if n.life.places() {
		if table = n.compute(now, view); table == nil {
			n.when.publish = now.Add(n.cfg.HeartbeatInterval) // the problem may pass
			return
		}
		n.stale = false
	}
	n.out.Show = true
	if table == nil || (!n.life.publishes() && n.life.phase != Over) {
		return // nothing is owned, and the live set is incomplete
	}
	moved := table.Digest() != n.table.Digest()
	news := TableDigest(table) != TableDigest(n.table)
	if !news && slices.EqualFunc(n.table.Nodes(), table.Nodes(), placement.Node.Equal) {
		table = n.table // watchers see at a glance that nothing moved
	}
	n.table = table
	n.adoptTable(now, view, table, n.life.entering && !n.life.coldStart)
	n.carryHandoff(now)
	n.life.entering = n.life.entering && n.life.phase != Active
	if moved {
		n.stats.TableChanges++
	}
	if news {
		n.announceTable(now)
	}
	s := n.nextState(table, membersOf(view), n.life.phase == Active)
	s.Details, s.Ended = n.details(view), n.set.Ended()
	n.publishState(s)
}

// announceTable sends a heartbeat with the new digest, at once unless receivers could
// not tell it from the last one.
func (n *Node) announceTable(now time.Time) {
	if at := n.set.NextHeartbeat(now); at.After(now) {
		n.when.heartbeat = earliest(n.when.heartbeat, at)
	} else {
		n.heartbeat(now)
	}
}

// fence publishes that this node owns nothing, in spite of the table, and why.
func (n *Node) fence(now time.Time, why string) {
	n.stats.Fences++
	n.fenced = why
	n.dropLease()
	n.renew(now) // for what comes next; this node owns nothing under it
	if n.assigner != nil {
		n.assigner.startWaiting(now)
	}
	n.fenceHandoff(now)
	if n.state != nil {
		s := n.nextState(n.table, n.state.Members, false)
		s.Details, s.Ended = n.state.Details, n.state.Ended
		n.publishState(s)
	}
}

// publishState makes s the newest state and logs what it changes.
func (n *Node) publishState(s *events.State) {
	b := events.Diff(n.state, s)
	n.state, n.out.State, n.out.Show = s, s, true
	for _, id := range b.Left {
		reason, level, message := cmp.Or(b.Reasons[id], lease.Expired), Info, "member left"
		if reason == lease.Crashed || reason == lease.Expired {
			level, message = Warn, "member lost"
		}
		n.log(level, message, "member", id, "reason", string(reason))
	}
	for _, id := range b.Joined {
		n.log(Info, "member joined", "member", id)
	}
	if len(b.Moved)+len(b.Acquired)+len(b.Released) > 0 {
		_, maxMean := rounded(s.Table.Balance())
		n.log(Info, "ownership changed", "version", b.Version, "acquired", len(b.Acquired), "released", len(b.Released),
			"moved", len(b.Moved), "partitions", n.cfg.Partitions, "nodes", len(s.Table.Nodes()), "max_mean", maxMean)
	}
}

// compute returns the table over the candidates of v, or nil if the strategy
// failed: then the last good table stays.
func (n *Node) compute(now time.Time, v *lease.View) *placement.Table {
	if v.Spared && n.sparedLog.allow(now, time.Minute) {
		n.log(Warn, "cordons have no effect: no other member could own anything", "cordoned", len(v.Cordoned))
	}
	in := placement.Input{Partitions: n.cfg.Partitions, Strategy: n.cfg.Strategy, Base: n.table}
	for i := range v.Members {
		if m := &v.Members[i]; m.Candidate() {
			in.Nodes = append(in.Nodes, placement.Node{
				ID: m.ID, Weight: m.Weight, Zone: m.Zone, Capacity: m.Capacity, Labels: m.Labels,
			})
		}
	}
	table, err := n.assign(now, v, in)
	if err != nil {
		n.reportProblem(now, err)
		return nil
	}
	n.problem = problem{}
	return table
}

// problem is the latest problem of the strategy.
type problem struct {
	text  string // as logged last; "" = the strategy works
	limit limiter
}

// reportProblem logs a problem of the strategy. The strategy is tried again and again; a
// repeated problem is logged once a minute.
func (n *Node) reportProblem(now time.Time, err error) {
	if err.Error() != n.problem.text {
		n.problem = problem{text: err.Error()}
	}
	if n.problem.limit.allow(now, time.Minute) {
		n.log(Error, "strategy failed; keeping the last table", "err", err)
	}
}

func membersOf(v *lease.View) []lease.Incarnation {
	members := make([]lease.Incarnation, len(v.Members))
	for i := range v.Members {
		members[i] = lease.Incarnation{Node: v.Members[i].ID, Number: v.Members[i].Incarnation}
	}
	return members
}

// details returns what is known of the members, as the list of the present state if nothing has changed.
func (n *Node) details(v *lease.View) []events.Detail {
	details := make([]events.Detail, len(v.Members))
	for i := range v.Members {
		details[i] = events.Detail{Record: v.Members[i].Record, State: v.Members[i].State}
	}
	if n.state != nil && slices.Equal(details, n.state.Details) {
		return n.state.Details
	}
	return details
}

// rounded returns numbers for a log.
func rounded(b placement.Balance) (cv, maxMean float64) {
	return math.Round(100*b.CV) / 100, math.Round(100*b.MaxMean) / 100
}

// balance is what the log says about the spread of partitions.
type balance struct {
	of     *placement.Table // reviewed last
	uneven bool             // logged last
	limit  limiter
}

// review logs when the load begins to vary too much between nodes, and when it does
// no longer: at most one line a minute, however often nodes come and go. A line that
// has to wait is written if it is still true by then.
func (b *balance) review(now time.Time, t *placement.Table, log func(Level, string, ...any)) {
	if t == b.of || len(t.Nodes()) == 0 {
		return
	}
	samples := t.Balance()
	advice := samples.Advice()
	if b.uneven == (advice != "") {
		b.of = t
		return
	}
	if !b.limit.allow(now, time.Minute) {
		return
	}
	b.of, b.uneven = t, advice != ""
	cv, maxMean := rounded(samples)
	if b.uneven {
		log(Warn, "partitions are spread unevenly", "cv", cv, "max_mean", maxMean, "advice", advice)
	} else {
		log(Info, "partitions are spread evenly again", "cv", cv, "max_mean", maxMean)
	}
}
