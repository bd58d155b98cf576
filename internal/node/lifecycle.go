package node

import (
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/split"
	"github.com/roost-cluster/roost/lease"
)

// Phase is the stage that a node has reached:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲         │  ▲         ▲ │
//	   │         │  └─────────│─┤ its clock is ahead of the cluster's
//	   │         └▶ isolated ─┘ │
//	   │               ▲────────┤ too few members, a minority, or a later process
//	   └────────────────────────┘ its own lease expired
//
// A [Hold] is not a phase. A node with a hold owns nothing in any phase. An active node with a hold announces
// the state draining. The holds duplicate and isolated make the node isolated, and the hold clock_ahead keeps
// the node in settling.
type Phase uint8

// The phases.
const (
	Joining  Phase = iota // no seed has answered yet
	Settling              // a member that owns nothing yet
	Isolated              // owns nothing because of the hold isolated or duplicate, or settles after it
	Active                // takes part in placement, except while it has a hold
	Over                  // left or closed
)

// String returns "joining", "settling", "isolated", "active" or "over".
func (p Phase) String() string {
	return [...]string{"joining", "settling", "isolated", "active", "over"}[p]
}

// lifecycle moves a node from phase to phase.
type lifecycle struct {
	*Node
	debounce, grace time.Duration

	phase       Phase
	holds       holds
	clockLogged time.Time // when the log last reported that the clock is ahead
	clockFenced bool      // settling because the clock went ahead while the node was active
	settleAt    time.Time // when settling ends, if no other node is active by then
	settleBy    time.Time // when settling ends even if nodes keep joining
	coldStart   bool      // no other node owned anything at the join
	entering    bool      // active, but no table has been published since
}

// joined starts settling.
func (l *lifecycle) joined(now time.Time, coldStart bool) {
	l.phase = Settling
	l.wait(now, coldStart)
}

// wait sets the time at which settling ends. If more nodes join, the end is postponed, but not beyond the
// grace period.
func (l *lifecycle) wait(now time.Time, coldStart bool) {
	l.settleAt = now.Add(2 * l.debounce)
	l.settleBy = now.Add(l.grace)
	l.coldStart = coldStart
}

// extend postpones the end of settling. If the live set changes while all nodes are settling, the cluster is
// still starting and more nodes may join.
func (l *lifecycle) extend(now time.Time) {
	l.settleAt = earliest(now.Add(2*l.debounce), l.settleBy)
}

// settle makes the node active if settling has ended. If other nodes are active, the node becomes active
// immediately, because the active nodes combine several joins into one change. If no node is active, many
// nodes may be starting together. In this case they wait until no more nodes join, and then become active
// together.
func (l *lifecycle) settle(now time.Time, othersActive bool) bool {
	if !l.settles() || (now.Before(l.settleAt) && !othersActive) {
		return false
	}
	l.phase = Active
	l.entering = true
	l.clockFenced = false
	l.settleAt = time.Time{}
	return true
}

// fence sends the node back to joining, because its own lease has expired.
func (l *lifecycle) fence() {
	l.phase = Joining
	l.clockFenced = false
	for _, c := range []Cause{CauseDuplicate, CauseClockAhead, CauseIsolated} { // the node has to detect these again
		l.release(c)
	}
}

// fenceClock sends the node back to settling until its clock is no longer ahead.
func (l *lifecycle) fenceClock(now time.Time) {
	l.phase = Settling
	l.clockFenced = true
	l.settleAt, l.settleBy = now, now
}

// isolate keeps the node from owning anything until it sees enough members. Even while it settles, the node
// remains in the phase Isolated, because unlike a new node it may host rooms.
func (l *lifecycle) isolate() {
	l.phase = Isolated
	l.clockFenced = false
	l.settleAt = time.Time{}
}

// isolates reports whether a hold makes the node isolated.
func (l *lifecycle) isolates() bool { return l.holds.has(CauseDuplicate) || l.holds.has(CauseIsolated) }

// settles reports whether the node is a member that is not active yet.
func (l *lifecycle) settles() bool { return l.phase == Settling || l.phase == Isolated }

// places reports whether the node computes tables. A node computes tables while it is active. It also does so
// while its clock keeps it from owning anything, because clients still send it lookups.
func (l *lifecycle) places() bool {
	return l.phase == Active || (l.phase == Settling && l.clockFenced)
}

// publishes reports whether the node publishes changes of the live set. An active node publishes changes with
// each new table. An isolated node publishes changes with its last table.
func (l *lifecycle) publishes() bool { return l.places() || l.phase == Isolated }

// announce announces the state that results from the phase and the holds.
func (n *Node) announce(now time.Time) {
	state := n.life.state()
	n.slowStart.slowStartOrNot(now, state)
	n.set.SetState(state)
	n.announceNews(now)
}

// settle makes a settling node active when settling ends, or isolates the node if it sees too few members.
func (i *isolation) settle(now time.Time) {
	if i.life.phase == Active {
		i.isolated(now)
	}
	if !i.life.settles() {
		return
	}
	if i.clock.holdClock(now) {
		i.hold(now)
		return
	}
	if i.isolated(now) {
		return
	}
	if i.changed {
		i.changed = false // no table is due before the node is active
		i.life.extend(now)
	}
	if i.life.settle(now, i.set.OthersActive()) {
		i.announce(now)
		i.log(Info, "settled", "state", i.set.State().String())
	}
}

// isolation decides whether this node may own anything. The node may own partitions under three conditions:
// It does not suspect a later process with its own id, it sees enough members, and it is on the side of a
// split that continues. Live members are counted in any state. Nodes that start together are all settling
// while they wait for each other, and so are nodes that a split has isolated.
type isolation struct {
	*Node
	least  int           // live members, including this node
	voters *split.Record // nil = all sides of a split continue
	side   split.Verdict
	looked time.Time // when the voters were last counted
	seen   uint64    // number of changes of the live set at that time
}

func isolationOf(cfg Config) isolation {
	i := isolation{least: cfg.MinMembers}
	if cfg.SplitForget > 0 {
		i.voters = &split.Record{Forget: cfg.SplitForget, Spread: cfg.LeaseTTL}
	}
	return i
}

// duplicate returns why a later process may be running with this node's id, or "" if no such process is
// suspected.
func (i *isolation) duplicate(other *lease.Record) string {
	if other != nil {
		return fmt.Sprintf("another process, at %s, may run under its id, and was started later", other.Addr)
	}
	return ""
}

// tooFew returns why this node sees too few members to own anything, or "" if it sees enough.
func (i *isolation) tooFew(members int) string {
	switch {
	case members < i.least:
		return fmt.Sprintf("too few members: it sees %d, itself included, and needs %d", members, i.least)
	case i.voters == nil || i.side.Owns:
		return ""
	case i.side.Why == split.Elders:
		return "it is new, and the members that it found are isolated"
	}
	return fmt.Sprintf("minority: it sees %d of %d voters", i.side.Votes, i.side.Seats)
}

// isolated isolates this node while it must not own anything, and reports whether the node is isolated. When
// the node may own partitions again, it settles for as long as a node that has just joined.
func (i *isolation) isolated(now time.Time) bool {
	i.countVoters(now)
	i.hold(now)
	if i.life.isolates() && i.life.phase != Isolated {
		i.isolate(now)
	}
	return i.life.isolates()
}

// hold adds or removes the holds duplicate and isolated, according to the last count of voters.
func (i *isolation) hold(now time.Time) {
	was := i.life.isolates()
	i.life.holdWhile(now, CauseDuplicate, i.duplicate(i.set.SuspectedDuplicate()))
	i.life.holdWhile(now, CauseIsolated, i.tooFew(i.set.Live()))
	if was && !i.life.isolates() {
		i.life.wait(now, !i.othersOwn())
	}
}

// countVoters counts the voters when the live set has changed, and otherwise once per heartbeat interval.
func (i *isolation) countVoters(now time.Time) {
	if i.voters == nil || (i.seen == i.stats.ViewChanges && now.Sub(i.looked) < i.cfg.HeartbeatInterval) {
		return
	}
	i.seen, i.looked = i.stats.ViewChanges, now
	var agreed time.Time
	if i.life.phase == Active && i.tables.table != nil && i.when.publish.IsZero() && !i.changed {
		agreed = i.set.Agreed(now, TableDigest(i.tables.table))
	}
	self := lease.Incarnation{Node: i.self, Number: i.set.Self().Incarnation}
	i.side = i.voters.Decide(now, self, i.members(), agreed, i.set)
	i.set.SetMissing(i.voters.Misses(now))
}

// members returns the live members in the form that the record of voters needs.
func (i *isolation) members() []split.Member {
	view := i.set.View()
	members := make([]split.Member, len(view.Members))
	for at := range view.Members {
		m := &view.Members[at]
		owns, table := m.State == lease.Active || m.State == lease.Draining, m.Table != 0
		if m.ID == i.self {
			owns, table = i.life.phase == Active, i.tables.table != nil
		}
		members[at] = split.Member{
			Incarnation: lease.Incarnation{Node: m.ID, Number: m.Incarnation}, Owns: owns, Placed: owns || table, Renewed: m.Renewed,
		}
	}
	return members
}

// isolate publishes that this node owns nothing. The last table remains available for lookups. Rooms that are
// pinned to this node remain here as well, because the node's own lease is still valid, and the store decides
// about rooms.
func (i *isolation) isolate(now time.Time) {
	i.life.isolate()
	if i.set.State() != lease.Settling {
		i.announce(now)
	}
	i.tables.publish(now)
}
