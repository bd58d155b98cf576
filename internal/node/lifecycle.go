package node

import (
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/split"
	"github.com/roost-cluster/roost/lease"
)

// Phase is where a node is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲         │  ▲         ▲ │
//	   │         │  └─────────│─┤ its clock is ahead of the cluster's
//	   │         └▶ isolated ─┘ │
//	   │               ▲────────┤ too few members, a minority, or a later process
//	   └────────────────────────┘ its own lease expired
//
// A [Hold] is not a phase. A node with a hold owns nothing in any phase: an active node then announces draining. The holds
// duplicate and isolated make the node isolated, and the hold clock_ahead keeps it settling.
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
	clockLogged time.Time // when the log said that the clock is ahead
	clockFenced bool      // settling because the clock went ahead while the node was active
	settleAt    time.Time // when settling ends, if no other node is active
	settleBy    time.Time // when settling ends even if nodes keep joining
	coldStart   bool      // no other node owned anything at the join
	entering    bool      // active, but no table was published since then
}

// joined begins to settle.
func (l *lifecycle) joined(now time.Time, coldStart bool) {
	l.phase = Settling
	l.wait(now, coldStart)
}

// wait begins to wait for the end of settling. If more nodes join, the end is postponed, but not beyond the
// grace.
func (l *lifecycle) wait(now time.Time, coldStart bool) {
	l.settleAt = now.Add(2 * l.debounce)
	l.settleBy = now.Add(l.grace)
	l.coldStart = coldStart
}

// extend waits for more nodes to join, because a change of the live set while all nodes are settling means
// that the cluster is still starting.
func (l *lifecycle) extend(now time.Time) {
	l.settleAt = earliest(now.Add(2*l.debounce), l.settleBy)
}

// settle makes the node active if settling is over. If others are active, it becomes active at once, because
// they collect joins into one change. If no node is active, many may be starting together. They wait until no
// more come, and all become active with the first of them.
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

// fence sends the node back to joining: its own lease expired.
func (l *lifecycle) fence() {
	l.phase = Joining
	l.clockFenced = false
	for _, c := range []Cause{CauseDuplicate, CauseClockAhead, CauseIsolated} { // the node has to find out again
		l.release(c)
	}
}

// fenceClock sends the node back to settling until its clock is right.
func (l *lifecycle) fenceClock(now time.Time) {
	l.phase = Settling
	l.clockFenced = true
	l.settleAt, l.settleBy = now, now
}

// isolate keeps the node from owning anything until it sees enough members. It stays in this phase while it
// settles, because unlike a new node it may host rooms.
func (l *lifecycle) isolate() {
	l.phase = Isolated
	l.clockFenced = false
	l.settleAt = time.Time{}
}

// isolates reports whether a hold makes the node isolated.
func (l *lifecycle) isolates() bool { return l.holds.has(CauseDuplicate) || l.holds.has(CauseIsolated) }

// settles reports whether the node is a member but not active yet.
func (l *lifecycle) settles() bool { return l.phase == Settling || l.phase == Isolated }

// places reports whether the node computes tables. It does while it is active, and while its clock keeps it
// from owning anything, because clients still ask it.
func (l *lifecycle) places() bool {
	return l.phase == Active || (l.phase == Settling && l.clockFenced)
}

// publishes reports whether the node publishes changes of the live set. It does with each table and, while it
// is isolated, with its last table.
func (l *lifecycle) publishes() bool { return l.places() || l.phase == Isolated }

// announce announces the state that follows from phase and holds.
func (n *Node) announce(now time.Time) {
	state := n.life.state()
	n.slowStart.slowStartOrNot(now, state)
	n.set.SetState(state)
	n.announceNews(now)
}

// settle makes a settling node active when it is time, or isolates it if it sees too few members.
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

// isolation decides whether this node may own anything. It may if no later process of its id may be running,
// it sees enough members, and it is on the right side of a split. All live members count in any state,
// because nodes that start together and wait for each other are settling, and so are nodes that a split has
// isolated.
type isolation struct {
	*Node
	least  int           // live members, including this node
	voters *split.Record // nil = all sides of a split continue
	side   split.Verdict
	looked time.Time // when it last looked at the voters
	seen   uint64    // changes of the live set at that time
}

func isolationOf(cfg Config) isolation {
	i := isolation{least: cfg.MinMembers}
	if cfg.SplitForget > 0 {
		i.voters = &split.Record{Forget: cfg.SplitForget, Spread: cfg.LeaseTTL}
	}
	return i
}

// duplicate returns why a later process of this node's id may be running, or "" if none is suspected.
func (i *isolation) duplicate(other *lease.Record) string {
	if other != nil {
		return fmt.Sprintf("another process, at %s, may run under its id, and was started later", other.Addr)
	}
	return ""
}

// tooFew returns why the members that this node sees do not allow it to own anything, or "" if they do.
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

// isolated isolates this node while it may own nothing, and reports whether it does. When the node may own
// partitions again, it settles for as long as a node that has just joined.
func (i *isolation) isolated(now time.Time) bool {
	i.countVoters(now)
	i.hold(now)
	if i.life.isolates() && i.life.phase != Isolated {
		i.isolate(now)
	}
	return i.life.isolates()
}

// hold holds while this node may own nothing, according to the last count of voters.
func (i *isolation) hold(now time.Time) {
	was := i.life.isolates()
	i.life.holdWhile(now, CauseDuplicate, i.duplicate(i.set.SuspectedDuplicate()))
	i.life.holdWhile(now, CauseIsolated, i.tooFew(i.set.Live()))
	if was && !i.life.isolates() {
		i.life.wait(now, !i.othersOwn())
	}
}

// countVoters counts the voters when the live set has changed, and with each heartbeat.
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

// members returns the live members in the form for the record of voters.
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

// isolate publishes that this node owns nothing. The last table stays for lookups. Rooms that are pinned here
// stay as well, because the node's own lease holds, and the store decides about rooms.
func (i *isolation) isolate(now time.Time) {
	i.life.isolate()
	if i.set.State() != lease.Settling {
		i.announce(now)
	}
	i.tables.publish(now)
}
