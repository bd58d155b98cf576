package node

import (
	"fmt"
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
	*Node
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

// endHold ends a hold whose time has come, or that the members cannot afford. After a
// step of cluster time it states the end anew.
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

// looksAround reports whether it is time to look at all members, which is O(nodes): when the
// live set or the phase has changed, and once per heartbeat, because expired leases are forgotten
// without a change of the live set.
func (d *damping) looksAround(now time.Time) bool {
	same := d.changes == d.stats.ViewChanges && d.phase == d.life.phase
	if same && now.Sub(d.looked) < d.cfg.HeartbeatInterval {
		return false
	}
	d.changes, d.phase, d.looked = d.stats.ViewChanges, d.life.phase, now
	return true
}

// cameBack reports, once, that this node had lost most other members, for the same reason for
// which they lost it, or because it gave up its own lease, and hears them again. O(nodes).
func (d *damping) cameBack() (back bool) {
	switch {
	case d.set.Outnumbered():
		d.lose(d.set.Revived())
	case d.life.phase != Joining:
		back = d.found(d.set.Revived())
	}
	return back
}

// formerCrashed reports, once, that the process before this one ended without a leave message. Its
// leave message may come a little later than its record: then nothing has happened.
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

// countReturn counts a return. All members learn of it, because they remember it if this process
// ends.
func (d *damping) countReturn(now time.Time) {
	if d.returned(now) && d.life.phase != Isolated && !d.canSpare() {
		d.forgive(now)
	}
	d.stateFlapping(now)
}

// stateFlapping states in the record whether this node is flapping.
func (d *damping) stateFlapping(now time.Time) {
	damped := *d.set.Self()
	damped.RecentReturns, damped.FlappingUntil = d.set.Stamp(d.countsUntil), d.set.Stamp(d.until)
	if damped.Validate() == nil {
		d.set.Update(func(r *lease.Record) { r.RecentReturns, r.FlappingUntil = damped.RecentReturns, damped.FlappingUntil })
	} else { // a record may be as long as it can be; a node that cannot say so is not flapping
		d.until = time.Time{}
	}
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

// canSpare reports whether at least half of the members that could own partitions may do so,
// without this one. Where many come and go, damping them would overload the others.
func (d *damping) canSpare() bool {
	others, all := d.set.Candidates()
	return 2*others >= all
}
