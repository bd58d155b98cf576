package lease

import (
	"slices"
	"time"
)

// expiry ends the leases that run out, and asks for news of those that are about to.
type expiry struct {
	*core
	pullTurn int // the live node from which on leases are pulled
}

// expire ends the leases that are older than the TTL, and reports whether there were any.
func (x *expiry) expire(now time.Time) (changed bool) {
	present := x.time.at(now)
	for i, v := range slices.Backward(x.vitals) {
		if v != x.self.vitals && millis(present-v.renewed()) > x.params.TTL {
			x.end(now, x.live[i], expired)
			x.stats.Expired++
			changed = true
		}
	}
	return changed
}

// forget forgets the leases that ended long ago: O(1) if all are live, otherwise O(known).
// Once the latest incarnation of a node is forgotten, the earlier ones may be live again: a
// node that still sends could not take a later incarnation.
func (x *expiry) forget(now time.Time) {
	if len(x.known) == len(x.live) {
		return
	}
	forgotten := make(map[NodeID]bool) // with their latest incarnation
	for h, e := range x.known {
		if e.status != live && x.time.since(now)-e.ended > x.params.forgetAfter() {
			delete(x.known, h)
			if x.latest(e.rec.ID) == e {
				forgotten[e.rec.ID] = true
			}
		}
	}
	if len(forgotten) == 0 {
		return
	}
	x.nodes, x.peers.place = slices.DeleteFunc(x.nodes, func(e *entry) bool { return forgotten[e.rec.ID] }), -1
	for _, earlier := range x.known {
		if forgotten[earlier.rec.ID] && earlier.status == retired && !earlier.left() {
			x.become(earlier, pending)
		}
	}
}

// remember keeps an ended lease in memory for as long as its node sends.
func (x *expiry) remember(now time.Time, sender Handle) {
	if e := x.known[sender]; e != nil && e.status != live && !e.left() {
		e.ended = x.time.since(now)
	}
}

// deadline returns when the oldest lease of another node runs out, or zero: O(nodes) after a lease began or expire,
// otherwise O(1), because a renewal only moves a deadline back.
func (x *expiry) deadline() time.Time {
	if x.oldest == 0 {
		x.oldest = x.findOldest()
	}
	if x.oldest == 0 {
		return time.Time{}
	}
	return x.time.local(x.oldest).Add(x.params.TTL + time.Millisecond)
}

// findOldest returns when the oldest lease of another node was renewed, or 0: O(nodes).
func (x *expiry) findOldest() (oldest Stamp) {
	for _, v := range x.vitals {
		if v != x.self.vitals && (oldest == 0 || v.renewed() < oldest) {
			oldest = v.renewed()
		}
	}
	return oldest
}

// OldestAge returns the age of the oldest live lease of another node, 0 if there is none:
// O(nodes).
func (x *expiry) OldestAge(now time.Time) time.Duration {
	if oldest := x.findOldest(); oldest != 0 {
		return millis(x.time.at(now) - oldest)
	}
	return 0
}

// ExpireOthers ends every lease except this node's: O(nodes). After a pause of this process
// for longer than the TTL, all that it knows is out of date. The latest known heartbeat of a node
// counts again if another node relays it, for as long as it holds there: the lease ended
// because of a pause of this node, not of its own.
func (x *expiry) ExpireOthers(now time.Time) {
	forgotten := 2*x.params.tick() + 1 // see revives
	for _, e := range x.nodes {
		if e.status == live && e != x.self {
			x.end(now, e, expired)
			e.at, e.grace = e.at-forgotten, e.grace+forgotten
		}
	}
}

// maxPullLeases is how many expiring leases one message pulls. While a tenth of a
// thousand nodes is dead, that is all of them.
const maxPullLeases = 100

// add pulls the leases that expire soon unless someone knows a later heartbeat:
// O(1) if there is none.
func (x *expiry) add(now time.Time, d *draft, deadline time.Time) {
	pullAt := x.params.TTL - x.params.TTL/4
	if deadline.IsZero() || deadline.Sub(now) > x.params.TTL-pullAt {
		return
	}
	space, latest := d.free/3, x.time.at(now)-stamps(pullAt)
	for i := range x.vitals {
		next := (x.pullTurn + i) % len(x.vitals)
		v := x.vitals[next]
		if v == x.self.vitals || v.renewed() >= latest {
			continue
		}
		if len(d.PullLeases) >= maxPullLeases || space < handleBytes {
			x.pullTurn = next // begin here in the next message
			break
		}
		d.PullLeases = append(d.PullLeases, x.order[next])
		d.news = true
		space -= handleBytes
		d.free -= handleBytes
	}
}
