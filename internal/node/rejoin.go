package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// rejoin is the way back of a node after its own lease expired, from the moment when
// it believes messages again.
type rejoin struct {
	quiet time.Duration
	began time.Time // zero = not rejoining
	asked bool      // for the members that it misses
}

// enterAt returns when gossip alone has brought enough news to enter by: some time
// after the rejoin began, and after the node asked for missing members.
func (r *rejoin) enterAt() time.Time {
	wait := 4 * r.quiet
	if r.asked {
		wait += r.quiet
	}
	return r.began.Add(wait)
}

// checkLease fences this node if its own lease has expired: the process was paused,
// or could send nothing, for so long that others have taken over. The node owns
// nothing, knows nothing, and has to join again.
func (n *Node) checkLease(now time.Time) {
	n.health.paused(n.stall.turn(now))
	if n.life.phase == Over || n.lease.Holds(now.Sub(n.started)) {
		return
	}
	n.log(Warn, "fenced: own lease expired (process paused or sends failing); rejoining", "ttl", n.cfg.LeaseTTL)
	n.expel(now)
}

// expel fences this node, and has it forget what it knows and join again.
func (n *Node) expel(now time.Time) {
	n.life.fence()
	n.join.stop()
	n.stall.discard(now)
	n.fence(now)
	n.damping.lose(n.set.Revived())
	n.damping.fenced = true
	n.set.ExpireOthers(now)
	n.join.lost.add(now, n.pick(n.set.ExpiredAddrs(nil), maxLost))
	n.announce(now)
	n.changed = false // the present knowledge is out of date
	n.when.publish = time.Time{}
}

// listenAgain ends the discarding and begins to rejoin. An attempt may wait for a node
// that does not answer; the news by gossip is as good.
func (n *Node) listenAgain(now time.Time) {
	if n.stall.discarded(now) {
		n.rejoin.began, n.rejoin.asked = now, false
		n.join.begin(now, n.cfg.StartupGrace)
	}
	if n.rejoin.began.IsZero() || now.Before(n.rejoin.enterAt()) || len(n.set.Peers(nil)) == 0 {
		return
	}
	// Heartbeats that came while messages were discarded are relayed a few times only:
	// their senders would be missing until their next heartbeat.
	if missing := n.set.ExpiredHandles(); !n.rejoin.asked && len(missing) > 0 {
		n.rejoin.asked = true
		n.askFor(now, missing)
		return
	}
	n.enter(now, true)
}

// askFor asks a few members for the records of others.
func (n *Node) askFor(now time.Time, others []lease.Handle) {
	b := n.encode(n.set.Request(now, others, nil))
	for _, addr := range n.pick(n.set.Peers(nil), n.cfg.GossipNodes) {
		n.send(Packet{To: addr, Bytes: b})
	}
}

const (
	maxLost     = 64
	rememberFor = 24 * time.Hour

	// lostAtOnce is how many lost members all members of one side of a split try together
	// in a RejoinInterval, on average: a large fleet must not hammer the hosts of dead nodes.
	lostAtOnce = 16
)

// lost is the addresses of members, in the order in which their leases ran out. A farewell
// is no loss.
type lost []loss

type loss struct {
	addr string
	at   time.Time
}

// add adds addresses that are not known as lost yet.
func (l *lost) add(now time.Time, addrs []string) {
	for _, addr := range addrs {
		if !slices.ContainsFunc(*l, func(o loss) bool { return o.addr == addr }) {
			*l = append(*l, loss{addr, now})
		}
	}
	*l = slices.Delete(*l, 0, max(0, len(*l)-maxLost))
}

// addrs returns the addresses, and forgets members, and what was lost long ago.
func (l *lost) addrs(now time.Time, members []string) (all []string) {
	*l = slices.DeleteFunc(*l, func(o loss) bool {
		return now.Sub(o.at) > rememberFor || slices.Contains(members, o.addr)
	})
	for _, o := range *l {
		all = append(all, o.addr)
	}
	return all
}

// heal begins an attempt of a member: it tries a few seeds and lost members that are not
// live. While the node settles, it exchanges with a member, too.
func (n *Node) heal(now time.Time) {
	n.join.stop()
	n.join.next = now.Add(n.jitter(n.cfg.RejoinInterval, 0.8, 1.2))
	members := n.set.Peers(nil)
	if n.life.settles() {
		n.add(memberAddr, members, nil, 1)
	}
	n.add(seedName, n.cfg.SeedNames, nil, len(n.cfg.SeedNames))
	n.add(seedAddr, n.cfg.Seeds, members, triesAtOnce)
	share := lostAtOnce / float64(len(members)+1)
	n.add(memberAddr, n.join.lost.addrs(now, members), nil, int(share+n.rng.Float64()))
	for _, t := range n.join.targets {
		n.try(now, t)
	}
}

// damping holds a node back that comes and goes: a member of which the others have noticed an
// end, and that is back. Each return counts for some time, and the times of several
// returns follow one another. So a node may return twice at once, and then once in that
// time. A later return waits, without partitions.
//
// A node judges itself. It knows what happened to its own process, and finds in the
// record of the process before it what that one knew.
type damping struct {
	off      bool
	ttl      time.Duration
	restless time.Time // until when returns count
	until    time.Time // the node owns nothing until then; zero = it is not held back
	away     bool      // most other members have expired: they lost this node, or are about to
	fenced   bool      // and this node gave up its own lease
	revived  uint64    // leases of others that had come back by then
	reached  uint64    // of these, those of nodes that were merely out of reach
	judged   time.Time // when the process before this one was; zero = none is known
}

// In TTLs.
const (
	returnCounts = 10 // how long a return counts
	mayReturn    = 2  // returns at once that cost nothing
	leastHold    = 2
	longestHold  = 30
)

// returned counts a return, and reports whether the node is held back from now on, or longer.
func (d *damping) returned(now time.Time) (held bool) {
	d.restless = latest(d.restless, now).Add(returnCounts * d.ttl)
	free := mayReturn*returnCounts*d.ttl - leastHold*d.ttl
	d.restless = earliest(d.restless, now.Add(free+longestHold*d.ttl))
	if d.restless.Sub(now) <= free+leastHold*d.ttl {
		return false
	}
	d.until = d.restless.Add(-free)
	return true
}

// inherit counts the returns of an earlier process.
func (d *damping) inherit(now, restless time.Time) {
	most := time.Duration(mayReturn*returnCounts-leastHold+longestHold) * d.ttl
	d.restless = latest(d.restless, earliest(restless, now.Add(most)))
}

// forgive ends a hold. The next return is one too many again.
func (d *damping) forgive(now time.Time) {
	d.until = time.Time{}
	d.restless = earliest(d.restless, now.Add(mayReturn*returnCounts*d.ttl))
}

// lose notes that this node is away, and how many leases of others have come back so far.
func (d *damping) lose(revived, reached uint64) {
	if !d.away {
		d.away, d.revived, d.reached = true, revived, reached
	}
}

// found reports, once, whether this node is back, since others are. If this node kept its own
// lease, others that gave up theirs do not count: it is they who are back.
func (d *damping) found(revived, reached uint64) (back bool) {
	back = d.away && (reached > d.reached || (d.fenced && revived > d.revived))
	d.away, d.fenced = false, false
	return back
}

// returns is how many returns count now.
func (d *damping) returns(now time.Time) int {
	each := returnCounts * d.ttl
	return int((max(0, d.restless.Sub(now)) + each - 1) / each)
}

// damp counts the returns of this node, and holds it back while there are too many.
func (n *Node) damp(now time.Time) {
	d := &n.damping
	if d.off || n.life.phase == Over {
		return
	}
	if n.cameBack(now) {
		n.countReturn(now)
	}
	switch {
	case d.until.IsZero(), n.life.phase == Joining, n.life.phase == Isolated:
		return
	case due(now, d.until):
		d.until = time.Time{}
	case !n.canSpare():
		d.forgive(now)
	case (d.until.Sub(now) - n.set.Until(now, n.set.Self().Held)).Abs() > d.ttl: // cluster time stepped
		n.setHeld(now)
		return
	default:
		return
	}
	n.log(Info, "no longer held back")
	n.setHeld(now)
}

// cameBack reports, once, that this node is back. Either its process began anew, without a
// farewell of the one before it. Or it had lost most other members, for the same reason for which
// they lost it or because it gave up its own lease, and hears them again.
func (n *Node) cameBack(now time.Time) (back bool) {
	d := &n.damping
	switch away := n.set.Outnumbered(); {
	case away:
		d.lose(n.set.Revived())
	case n.life.phase != Joining:
		back = d.found(n.set.Revived())
	}
	if n.life.phase == Joining {
		return false
	}
	return n.judgeFormer(now) || back
}

// judgeFormer reports, once, that the process before this one ended without a farewell. Its
// farewell may come a little later than its record: then nothing has happened.
func (n *Node) judgeFormer(now time.Time) (crashed bool) {
	d := &n.damping
	former, left := n.set.Former()
	switch {
	case former == nil:
	case d.judged.IsZero():
		if d.judged = now; !left {
			d.inherit(now, now.Add(n.set.Until(now, former.Restless)))
			return true
		}
	case left && !d.restless.IsZero() && now.Sub(d.judged) < d.ttl:
		d.restless, d.until = time.Time{}, time.Time{}
		if n.life.held {
			n.log(Info, "no longer held back")
		}
		n.setHeld(now)
	}
	return false
}

// countReturn counts a return. All members learn of it, since they remember it if this process
// ends.
func (n *Node) countReturn(now time.Time) {
	d := &n.damping
	if d.returned(now) && n.life.phase != Isolated && !n.canSpare() {
		d.forgive(now)
	}
	n.setHeld(now)
	if !d.until.IsZero() {
		n.log(Warn, "held back: it comes and goes; this node owns nothing", "for", d.until.Sub(now), "returns", d.returns(now))
	}
}

// setHeld announces whether this node is held back.
func (n *Node) setHeld(now time.Time) {
	d := &n.damping
	damped := *n.set.Self()
	damped.Restless, damped.Held = n.set.Stamp(d.restless), 0
	if n.life.held = !d.until.IsZero(); n.life.held {
		damped.Held = n.set.Stamp(d.until)
	}
	if damped.Validate() == nil {
		n.set.Update(func(r *lease.Record) { r.Restless, r.Held = damped.Restless, damped.Held })
	} else { // a record may be as long as it can be; a node that cannot say so is not held back
		d.until, n.life.held = time.Time{}, false
	}
	n.announce(now)
	n.publish(now)
}

// canSpare reports whether at least half of the members that could own partitions may do so,
// without this one. Where many come and go, to hold them back would load the others.
func (n *Node) canSpare() bool {
	others, all := n.set.Candidates()
	return 2*others >= all
}
