package node

import (
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// damping implements flap damping: a node that repeatedly disappears and returns owns nothing for some time.
// A return is only counted if other nodes had noticed that the node was gone. Each return counts for a fixed
// period, and the periods of several returns add up. So a node may return twice in a row, and after that once
// per period. A node that returns more often is flapping.
//
// Each node decides for itself whether it is flapping. It knows what happened to its own process, and it
// reads the returns of the previous process from that process's record.
type damping struct {
	*Node
	off         bool
	ttl         time.Duration
	countsUntil time.Time // returns count until then
	until       time.Time // the node owns nothing until then; zero = it is not flapping
	away        bool      // most other members have expired, so they have lost this node or are about to lose it
	fenced      bool      // this node also gave up its own lease
	revived     uint64    // leases of other nodes that had come back when this node was lost
	reached     uint64    // leases among these whose nodes were only out of reach
	examined    time.Time // when the previous process's record was examined; zero = none is known

	changes uint64 // changes of the live set when this node last looked around; see looksAround
	phase   Phase  // the phase when this node last looked around
	looked  time.Time
}

// In TTLs, except mayReturn.
const (
	returnCounts = 10 // how long a return counts
	mayReturn    = 2  // returns in a row without flapping
	leastHold    = 2
	longestHold  = 30
)

// returned counts a return. It reports whether the node starts to flap, or continues to flap for longer.
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

// inherit takes over the returns that an earlier process counted.
func (d *damping) inherit(now, countsUntil time.Time) {
	most := time.Duration(mayReturn*returnCounts-leastHold+longestHold) * d.ttl
	d.countsUntil = latest(d.countsUntil, earliest(countsUntil, now.Add(most)))
}

// forgive ends the hold early. The next return makes the node flap again.
func (d *damping) forgive(now time.Time) {
	d.until = time.Time{}
	d.countsUntil = earliest(d.countsUntil, now.Add(mayReturn*returnCounts*d.ttl))
}

// lose records that other nodes have lost this node, and how many leases of other nodes have come back so far.
func (d *damping) lose(revived, reached uint64) {
	if !d.away {
		d.away, d.revived, d.reached = true, revived, reached
	}
}

// found reports, only once, whether this node is back. It concludes this from the leases of other nodes that have come
// back. If this node kept its own lease, nodes that gave up their leases are ignored, because those nodes were away,
// and not this node.
func (d *damping) found(revived, reached uint64) (back bool) {
	back = d.away && (reached > d.reached || (d.fenced && revived > d.revived))
	d.away, d.fenced = false, false
	return back
}

// returns computes how many returns currently count.
func (d *damping) returns(now time.Time) int {
	each := returnCounts * d.ttl
	return int((max(0, d.countsUntil.Sub(now)) + each - 1) / each)
}

// damp counts the returns of this node, and decides whether the node is flapping.
func (d *damping) damp(now time.Time) {
	if d.off || d.life.phase == Over {
		return
	}
	look := d.looksAround(now)
	if back, crashed := look && d.cameBack(), d.formerCrashed(now); back || crashed {
		d.countReturn(now)
	}
	if !d.until.IsZero() && d.life.phase != Joining && d.life.phase != Isolated {
		d.endHold(now, look)
	}
}

// endHold ends a hold that has expired. It also ends a hold if too few other members can own partitions.
// After a step of the cluster time, endHold announces the new end of the hold.
func (d *damping) endHold(now time.Time, look bool) {
	switch {
	case due(now, d.until):
		d.until = time.Time{}
	case look && !d.canSpare():
		d.forgive(now)
	case (d.until.Sub(now) - d.set.Until(now, d.set.Self().FlappingUntil)).Abs() > d.ttl:
		d.stateFlapping(now)
		return
	default:
		return
	}
	d.stateFlapping(now)
}

// looksAround reports whether it is time to look at all members, which costs O(nodes). This is the case when
// the live set or the phase has changed, and once per heartbeat interval. The periodic check is necessary
// because expired leases are forgotten without a change of the live set.
func (d *damping) looksAround(now time.Time) bool {
	same := d.changes == d.stats.ViewChanges && d.phase == d.life.phase
	if same && now.Sub(d.looked) < d.cfg.HeartbeatInterval {
		return false
	}
	d.changes, d.phase, d.looked = d.stats.ViewChanges, d.life.phase, now
	return true
}

// cameBack reports, only once, that this node hears other members again after it had lost most of them. In
// this case, those members have lost this node as well, or this node has given up its own lease. cameBack
// costs O(nodes).
func (d *damping) cameBack() (back bool) {
	switch {
	case d.set.Outnumbered():
		d.lose(d.set.Revived())
	case d.life.phase != Joining:
		back = d.found(d.set.Revived())
	}
	return back
}

// formerCrashed reports, only once, that the previous process of this node ended without a leave message. It
// waits for a moment first, because a leave message may arrive a little later than the record.
func (d *damping) formerCrashed(now time.Time) (crashed bool) {
	former, left := d.set.Former()
	switch {
	case former == nil, d.life.phase == Joining:
	case d.examined.IsZero():
		if d.examined = now; !left {
			d.inherit(now, now.Add(d.set.Until(now, former.RecentReturns)))
			return true
		}
	case left && !d.countsUntil.IsZero() && now.Sub(d.examined) < d.ttl:
		d.countsUntil, d.until = time.Time{}, time.Time{}
		d.stateFlapping(now)
	}
	return false
}

// countReturn counts a return and announces it to all members, so that they still know about it after this
// process ends.
func (d *damping) countReturn(now time.Time) {
	if d.returned(now) && d.life.phase != Isolated && !d.canSpare() {
		d.forgive(now)
	}
	d.stateFlapping(now)
}

// stateFlapping announces in this node's record whether the node is flapping.
func (d *damping) stateFlapping(now time.Time) {
	d.set.Update(func(r *lease.Record) {
		r.RecentReturns, r.FlappingUntil = d.set.Stamp(d.countsUntil), d.set.Stamp(d.until)
	})
	if d.until.IsZero() {
		d.life.release(CauseFlapping)
		d.announce(now)
		d.tables.comeBack(now)
		return
	}
	d.life.hold(now, Hold{Cause: CauseFlapping, Until: d.until, Reason: d.why(now)})
	d.announce(now)
	d.tables.publish(now)
}

// why returns why this node is flapping.
func (d *damping) why(now time.Time) string {
	reason := fmt.Sprintf("it came back %d times lately", d.returns(now))
	if former, left := d.set.Former(); former != nil && !left && former.Addr != d.set.Self().Addr {
		reason += fmt.Sprintf("; a process with its id was at %s before, and may still run there", former.Addr)
	}
	return reason
}

// canSpare reports whether at least half of all members with a weight can own partitions even if this node owns
// nothing. If many nodes flap at the same time, damping them all would overload the others.
func (d *damping) canSpare() bool {
	others, all := d.set.Candidates()
	return 2*others >= all
}
