package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// damping is flap damping: a node that comes and goes too often owns nothing for some time. A
// return is the return of a member whose end the others have noticed. Each return counts for
// some time, and the times of several returns follow one another. So a node may return twice
// at once, and then once in that time. After one more return it is flapping.
//
// A node decides about itself. It knows what happened to its own process, and finds in the
// record of the process before it what that one knew.
type damping struct {
	off         bool
	ttl         time.Duration
	countsUntil time.Time // until when returns count
	until       time.Time // the node owns nothing until then; zero = it is not flapping
	away        bool      // most other members have expired: they lost this node, or are about to
	fenced      bool      // and this node gave up its own lease
	revived     uint64    // leases of others that had come back by then
	reached     uint64    // of these, those of nodes that were merely out of reach
	examined    time.Time // when the record of the process before this one was; zero = none is known

	changes uint64 // of the live set, when this node last looked around; see looksAround
	phase   Phase  // likewise
	looked  time.Time
}

// In TTLs.
const (
	returnCounts = 10 // how long a return counts
	mayReturn    = 2  // returns at once that cost nothing
	leastHold    = 2
	longestHold  = 30
)

// returned counts a return, and reports whether the node is flapping from now on, or longer.
func (d *damping) returned(now time.Time) (flapping bool) {
	d.countsUntil = latest(d.countsUntil, now).Add(returnCounts * d.ttl)
	free := mayReturn*returnCounts*d.ttl - leastHold*d.ttl
	d.countsUntil = earliest(d.countsUntil, now.Add(free+longestHold*d.ttl))
	if d.countsUntil.Sub(now) <= free+leastHold*d.ttl {
		return false
	}
	d.until = d.countsUntil.Add(-free)
	return true
}

// inherit counts the returns of an earlier process.
func (d *damping) inherit(now, countsUntil time.Time) {
	most := time.Duration(mayReturn*returnCounts-leastHold+longestHold) * d.ttl
	d.countsUntil = latest(d.countsUntil, earliest(countsUntil, now.Add(most)))
}

// forgive ends a hold. The next return is one too many again.
func (d *damping) forgive(now time.Time) {
	d.until = time.Time{}
	d.countsUntil = earliest(d.countsUntil, now.Add(mayReturn*returnCounts*d.ttl))
}

// lose notes that this node is away, and how many leases of others have come back so far.
func (d *damping) lose(revived, reached uint64) {
	if !d.away {
		d.away, d.revived, d.reached = true, revived, reached
	}
}

// found reports, once, whether this node is back, because others are. If this node kept its own
// lease, others that gave up theirs do not count: it is they who are back.
func (d *damping) found(revived, reached uint64) (back bool) {
	back = d.away && (reached > d.reached || (d.fenced && revived > d.revived))
	d.away, d.fenced = false, false
	return back
}

// returns is how many returns count now.
func (d *damping) returns(now time.Time) int {
	each := returnCounts * d.ttl
	return int((max(0, d.countsUntil.Sub(now)) + each - 1) / each)
}

// damp counts the returns of this node, which is flapping while there are too many.
func (n *Node) damp(now time.Time) {
	if n.damping.off || n.life.phase == Over {
		return
	}
	look := n.looksAround(now)
	if back, crashed := look && n.cameBack(), n.formerCrashed(now); back || crashed {
		n.countReturn(now)
	}
	if !n.damping.until.IsZero() && n.life.phase != Joining && n.life.phase != Isolated {
		n.endHold(now, look)
	}
}

// endHold ends a hold whose time has come, or that the members cannot afford. After a
// step of cluster time it states the end anew.
func (n *Node) endHold(now time.Time, look bool) {
	d := &n.damping
	switch {
	case due(now, d.until):
		d.until = time.Time{}
	case look && !n.canSpare():
		d.forgive(now)
	case (d.until.Sub(now) - n.set.Until(now, n.set.Self().FlappingUntil)).Abs() > d.ttl:
		n.stateFlapping(now)
		return
	default:
		return
	}
	n.log(Info, "no longer flapping")
	n.stateFlapping(now)
}

// looksAround reports whether it is time to look at all members, which is O(nodes): when the
// live set or the phase has changed, and once per heartbeat, because expired leases are forgotten
// without a change of the live set.
func (n *Node) looksAround(now time.Time) bool {
	d := &n.damping
	same := d.changes == n.stats.ViewChanges && d.phase == n.life.phase
	if same && now.Sub(d.looked) < n.cfg.HeartbeatInterval {
		return false
	}
	d.changes, d.phase, d.looked = n.stats.ViewChanges, n.life.phase, now
	return true
}

// cameBack reports, once, that this node had lost most other members, for the same reason for
// which they lost it, or because it gave up its own lease, and hears them again. O(nodes).
func (n *Node) cameBack() (back bool) {
	d := &n.damping
	switch {
	case n.set.Outnumbered():
		d.lose(n.set.Revived())
	case n.life.phase != Joining:
		back = d.found(n.set.Revived())
	}
	return back
}

// formerCrashed reports, once, that the process before this one ended without a leave message. Its
// leave message may come a little later than its record: then nothing has happened.
func (n *Node) formerCrashed(now time.Time) (crashed bool) {
	d := &n.damping
	former, left := n.set.Former()
	switch {
	case former == nil, n.life.phase == Joining:
	case d.examined.IsZero():
		if d.examined = now; !left {
			d.inherit(now, now.Add(n.set.Until(now, former.RecentReturns)))
			return true
		}
	case left && !d.countsUntil.IsZero() && now.Sub(d.examined) < d.ttl:
		d.countsUntil, d.until = time.Time{}, time.Time{}
		if n.life.flapping {
			n.log(Info, "no longer flapping")
		}
		n.stateFlapping(now)
	}
	return false
}

// countReturn counts a return. All members learn of it, because they remember it if this process
// ends.
func (n *Node) countReturn(now time.Time) {
	d := &n.damping
	if d.returned(now) && n.life.phase != Isolated && !n.canSpare() {
		d.forgive(now)
	}
	n.stateFlapping(now)
	if !d.until.IsZero() {
		attrs := []any{"for", d.until.Sub(now), "returns", d.returns(now)}
		if former, left := n.set.Former(); former != nil && !left && former.Addr != n.set.Self().Addr {
			attrs = append(attrs, "former_addr", former.Addr) // perhaps a process that runs there under the same id
		}
		n.log(Warn, "flapping: it comes and goes; this node owns nothing", attrs...)
	}
}

// stateFlapping states in the record whether this node is flapping.
func (n *Node) stateFlapping(now time.Time) {
	d := &n.damping
	damped := *n.set.Self()
	damped.RecentReturns, damped.FlappingUntil = n.set.Stamp(d.countsUntil), 0
	if n.life.flapping = !d.until.IsZero(); n.life.flapping {
		damped.FlappingUntil = n.set.Stamp(d.until)
	}
	if damped.Validate() == nil {
		n.set.Update(func(r *lease.Record) { r.RecentReturns, r.FlappingUntil = damped.RecentReturns, damped.FlappingUntil })
	} else { // a record may be as long as it can be; a node that cannot say so is not flapping
		d.until, n.life.flapping = time.Time{}, false
	}
	n.announce(now)
	if n.life.flapping {
		n.publish(now)
	} else {
		n.comeBack(now)
	}
}

// canSpare reports whether at least half of the members that could own partitions may do so,
// without this one. Where many come and go, damping them would overload the others.
func (n *Node) canSpare() bool {
	others, all := n.set.Candidates()
	return 2*others >= all
}
