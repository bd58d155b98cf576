package node

import "time"

// duty is a task that a node carries out by itself.
type duty struct {
	// run does the work that is due. It is called in each turn, and usually has nothing to do.
	run func(now time.Time)

	// deadline returns the time of the next work if nothing else happens before then. A zero or past time
	// means that the duty waits for an event instead. deadline is nil if run has no deadlines and only reacts
	// to other duties.
	deadline func() time.Time
}

// allDuties lists the duties of a node in the order of a turn. Duties that change the view of other nodes
// come first. Then come duties that change the phase and state of this node, and then those that report it to
// the application and the other nodes.
func (n *Node) allDuties() []duty {
	at := func(t *time.Time) func() time.Time { return func() time.Time { return *t } }
	return []duty{
		{n.renewLease, at(&n.when.heartbeat)},
		{n.review, at(&n.when.review)},
		{n.clock.checkClock, nil},
		{n.expire, at(&n.when.expire)},
		{n.beginDrains, n.set.NextDrain},
		{n.rejoin.listenAgain, at(&n.stall.discardUntil)},
		{n.waiting.remind, at(&n.waiting.next)},
		{n.watch.suspect, at(&n.watch.next)},
		{n.watch.noteCrashes, nil},
		{n.reach.checkReach, at(&n.reach.ask)},
		{n.address.checkAddress, at(&n.address.next)},
		{n.asleep.checkAwake, at(&n.asleep.ask)},
		{n.join.finish, at(&n.join.enterAt)},
		{n.join.tryJoin, at(&n.join.next)},
		{n.damping.damp, at(&n.damping.until)},
		{n.isolation.settle, at(&n.life.settleAt)},
		{n.identity.found, nil},
		{n.health.applyHealth, at(&n.health.until)},
		{n.cordons.reportCordons, nil},
		{n.slowStart.grow, at(&n.slowStart.next)},
		{n.weight.adjust, at(&n.weight.next)},
		{n.tables.plan, nil},
		{n.tables.publishDue, at(&n.when.publish)},
		{n.gossipDue, at(&n.when.gossip)},
		{n.handing.handOff, nil},
	}
}

// advance does all work that is due, and returns when more work will be due.
func (n *Node) advance(now time.Time) time.Time {
	for _, d := range n.duties {
		d.run(now)
	}
	return next(now, n.duties)
}

// next returns the earliest deadline in the future.
func next(now time.Time, duties []duty) (first time.Time) {
	for _, d := range duties {
		if d.deadline == nil {
			continue
		}
		if at := d.deadline(); at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// renewLease renews the lease of this node when its heartbeat is due.
func (n *Node) renewLease(now time.Time) {
	if due(now, n.when.heartbeat) {
		n.heartbeat(now)
	}
}

// review checks the table as a whole, once per heartbeat interval.
func (n *Node) review(now time.Time) {
	if now.Before(n.when.review) {
		return
	}
	n.when.review = now.Add(n.cfg.HeartbeatInterval)
	n.assigner.level(now)
	if n.life.places() {
		n.tables.balance.review(now, n.tables.table, n.log)
	}
}

// gossipDue sends news to other nodes when a round of gossip is due.
func (n *Node) gossipDue(now time.Time) {
	if due(now, n.when.gossip) {
		n.gossip(now)
		n.handing.tickHandoff(now)
	}
}
