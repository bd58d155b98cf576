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

// tables computes the table from the live set, and publishes which partitions this node owns.
type tables struct {
	*Node
	table      *placement.Table
	stale      bool // the table is from before a fence
	state      *events.State
	fenced     string // why this node was last fenced
	divergence divergence
	balance    balance
	problem    problem
	sparedLog  limiter
}

// plan decides when a change of the live set is published:
//   - immediately if an owner left or drains, because its partitions have no owner
//   - immediately if any other member left, because rooms may be pinned to it
//   - a moment later if the failure of a member was confirmed
//   - when no more leases are about to run out, if a lease ran out
//   - after the debounce if there are only newcomers, which may include this node
func (t *tables) plan(now time.Time) {
	if !t.changed || !t.life.publishes() {
		return
	}
	ranOut := t.when.lost
	t.changed, t.when.lost = false, false
	if t.life.entering || !t.set.Lost() || (!t.ownerGone() && !t.memberLeft()) {
		t.when.publishBy(now.Add(t.cfg.Debounce))
		return
	}
	t.when.publishBy(now)
	if !ranOut && !t.reach.mayBeCutOff(now) {
		t.when.losses = time.Time{} // a leave does not wait, unless this node itself may be lost
	}
}

// ownerGone reports whether a candidate of the table has left or drains. Candidates that are settling are
// ignored, because they have been restarted or fenced and will soon be back.
func (t *tables) ownerGone() bool {
	owners := t.table.Nodes() // sorted by id, like the states
	for r, state := range t.set.States {
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

// memberLeft reports whether a member in the last published state has left.
func (t *tables) memberLeft() bool {
	return t.state != nil && slices.ContainsFunc(t.state.Members, t.set.Left)
}

// moreLosses reports whether a due change must wait for more leases to run out. The wait combines nodes that
// crashed or were cut off together into one new table. All these nodes sent their last heartbeats within one
// heartbeat interval. So the change waits for at most one interval, as long as some lease is too old to
// belong to a running node. After a single crash there is no wait.
func (t *tables) moreLosses(now time.Time) bool {
	if !t.when.losses.IsZero() && t.reach.mayBeCutOff(now) {
		return true // this node itself may be lost
	}
	interval := t.cfg.HeartbeatInterval*11/10 + t.cfg.LeaseTTL/16
	if t.when.losses.IsZero() || t.life.entering || now.Sub(t.when.losses) >= interval {
		return false
	}
	return t.set.OldestAge(now) > t.cfg.LeaseTTL-interval
}

// publishDue publishes the planned change when its time has come.
func (t *tables) publishDue(now time.Time) {
	if due(now, t.when.publish) && !t.moreLosses(now) && !t.watch.moreConfirmations(now) {
		t.publish(now)
	}
}

// publish computes the table from the current live set and publishes it.
func (t *tables) publish(now time.Time) {
	t.when.publish, t.when.losses, t.watch.confirmed = time.Time{}, time.Time{}, time.Time{}
	t.changed = false
	view := t.set.View()
	table := t.table
	if t.life.places() {
		if table = t.compute(now, view); table == nil {
			t.when.publish = now.Add(t.cfg.HeartbeatInterval) // the problem may pass
			return
		}
		t.stale = false
	}
	t.out.Show = true
	if table == nil || (!t.life.publishes() && t.life.phase != Over) {
		return // this node owns nothing, and its live set is incomplete
	}
	moved := table.Digest() != t.table.Digest()
	news := TableDigest(table) != TableDigest(t.table)
	if !news && slices.EqualFunc(t.table.Nodes(), table.Nodes(), placement.Node.Equal) {
		table = t.table // so that watchers see quickly that nothing moved
	}
	t.table = table
	t.handing.adoptTable(now, view, table, t.life.entering && !t.life.coldStart)
	t.handing.carryHandoff(now)
	t.life.entering = t.life.entering && t.life.phase != Active
	if moved {
		t.stats.TableChanges++
	}
	if news {
		t.announceTable(now)
	}
	s := t.handing.nextState(table, membersOf(view), t.life.phase == Active)
	s.Details, s.Ended = t.details(view), t.set.Ended()
	t.publishState(s)
}

// announceTable sends a heartbeat with the new table digest. The heartbeat is sent as soon as receivers can
// distinguish it from the previous heartbeat.
func (t *tables) announceTable(now time.Time) {
	if at := t.set.NextHeartbeat(now); at.After(now) {
		t.when.heartbeat = earliest(t.when.heartbeat, at)
	} else {
		t.heartbeat(now)
	}
}

// fence publishes that this node owns nothing, regardless of the table, and records the reason.
func (t *tables) fence(now time.Time, why string) {
	t.stats.Fences++
	t.fenced = why
	t.dropLease()
	t.renew(now) // for the next phase; this node owns nothing with this lease
	if t.assigner.on {
		t.assigner.startWaiting(now)
	}
	t.handing.fenceHandoff(now)
	if t.state != nil {
		s := t.handing.nextState(t.table, t.state.Members, false)
		s.Details, s.Ended = t.state.Details, t.state.Ended
		t.publishState(s)
	}
}

// publishState makes s the newest state, and logs the changes.
func (t *tables) publishState(s *events.State) {
	b := events.Diff(t.state, s)
	t.state, t.out.State, t.out.Show = s, s, true
	for _, id := range b.Left {
		reason, level, message := cmp.Or(b.Reasons[id], lease.Expired), Info, "member left"
		if reason == lease.Crashed || reason == lease.Expired {
			level, message = Warn, "member lost"
		}
		t.log(level, message, "member", id, "reason", string(reason))
	}
	for _, id := range b.Joined {
		t.log(Info, "member joined", "member", id)
	}
	if len(b.Moved)+len(b.Acquired)+len(b.Released) > 0 {
		_, maxMean := rounded(s.Table.Balance())
		t.log(Info, "ownership changed", "version", b.Version, "acquired", len(b.Acquired), "released", len(b.Released),
			"moved", len(b.Moved), "partitions", t.cfg.Partitions, "nodes", len(s.Table.Nodes()), "max_mean", maxMean)
	}
}

// compute returns the table of the candidates in v. If the strategy fails, compute returns nil, and the last
// valid table remains in use.
func (t *tables) compute(now time.Time, v *lease.View) *placement.Table {
	if v.Spared && t.sparedLog.allow(now, time.Minute) {
		t.log(Warn, "cordons have no effect", "cordoned", len(v.Cordoned),
			"why", "no other member could own anything")
	}
	in := placement.Input{Partitions: t.cfg.Partitions, Strategy: t.cfg.Strategy, Base: t.table}
	for i := range v.Members {
		if m := &v.Members[i]; m.Candidate() {
			in.Nodes = append(in.Nodes, placement.Node{
				ID: m.ID, Weight: m.Weight, Zone: m.Zone, Capacity: m.Capacity, Labels: m.Labels,
			})
		}
	}
	table, err := t.assigner.assign(now, v, in)
	if err != nil {
		t.reportProblem(now, err)
		return nil
	}
	t.problem = problem{}
	return table
}

// problem is the latest failure of the strategy.
type problem struct {
	text  string // as last logged; "" = the strategy works
	limit limiter
}

// reportProblem logs a failure of the strategy. The node keeps retrying the strategy, and logs a repeated
// failure once a minute.
func (t *tables) reportProblem(now time.Time, err error) {
	if err.Error() != t.problem.text {
		t.problem = problem{text: err.Error()}
	}
	if t.problem.limit.allow(now, time.Minute) {
		t.log(Error, "strategy failed; keeping the last table", "err", err)
	}
}

func membersOf(v *lease.View) []lease.Incarnation {
	members := make([]lease.Incarnation, len(v.Members))
	for i := range v.Members {
		members[i] = lease.Incarnation{Node: v.Members[i].ID, Number: v.Members[i].Incarnation}
	}
	return members
}

// details returns the records and states of the members. If they have not changed, it returns the slice of
// the current state.
func (t *tables) details(v *lease.View) []events.Detail {
	details := make([]events.Detail, len(v.Members))
	for i := range v.Members {
		details[i] = events.Detail{Record: v.Members[i].Record, State: v.Members[i].State}
	}
	if t.state != nil && slices.Equal(details, t.state.Details) {
		return t.state.Details
	}
	return details
}

// rounded returns rounded numbers for the log.
func rounded(b placement.Balance) (cv, maxMean float64) {
	return math.Round(100*b.CV) / 100, math.Round(100*b.MaxMean) / 100
}

// balance logs how evenly partitions are spread.
type balance struct {
	of     *placement.Table // the table that was last reviewed
	uneven bool             // as last logged
	limit  limiter
}

// review logs when the load starts to vary too much between nodes, and when it no longer does. It logs at
// most one line per minute, no matter how often nodes join and leave. A delayed line is only written if it is
// still true by then.
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
