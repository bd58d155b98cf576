package lease

import (
	"slices"
	"time"
)

// expiry is the protocol that ends expired leases, and pulls later heartbeats for leases that are about to
// expire.
type expiry struct {
	*core
	pullTurn int // index of the live node at which the next pull begins
}

// expire ends leases that are older than the TTL, and reports whether it ended any.
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

// forget forgets leases that ended long ago. It costs O(1) if all leases are live, otherwise O(known). Once
// the set has forgotten the latest incarnation of a node, an earlier incarnation can become live again,
// because a node that still sends heartbeats cannot always take a later incarnation.
func (x *expiry) forget(now time.Time) {
	if len(x.known) == len(x.live) {
		return
	}
	forgotten := make(map[NodeID]bool) // nodes whose latest incarnation was forgotten
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

// remember extends the time for which the set remembers an ended lease, because its node still sends
// messages.
func (x *expiry) remember(now time.Time, sender Handle) {
	if e := x.known[sender]; e != nil && e.status != live && !e.left() {
		e.ended = x.time.since(now)
	}
}

// deadline returns when the oldest live lease of another node expires, or the zero time if there is none. It
// costs O(nodes) after a lease began and after expire. Otherwise it costs O(1), because a renewal can only
// postpone the deadline.
func (x *expiry) deadline() time.Time {
	if x.oldest == 0 {
		x.oldest = x.findOldest()
	}
	if x.oldest == 0 {
		return time.Time{}
	}
	return x.time.local(x.oldest).Add(x.params.TTL + time.Millisecond)
}

// findOldest returns when the oldest live lease of another node was renewed, or 0 if there is none. It costs
// O(nodes).
func (x *expiry) findOldest() (oldest Stamp) {
	for _, v := range x.vitals {
		if v != x.self.vitals && (oldest == 0 || v.renewed() < oldest) {
			oldest = v.renewed()
		}
	}
	return oldest
}

// OldestAge returns the age of the oldest live lease of another node, or 0 if there is none. It costs
// O(nodes).
func (x *expiry) OldestAge(now time.Time) time.Duration {
	if oldest := x.findOldest(); oldest != 0 {
		return millis(x.time.at(now) - oldest)
	}
	return 0
}

// ExpireOthers ends every lease except this node's own lease. Call it after this process was paused for longer than the
// TTL, because its knowledge is then out of date. After the call, the set accepts the latest known heartbeat of a node
// again if another node relays it while the node is live there. Otherwise nodes that are still running would remain
// expired in this set until their next heartbeats arrive. ExpireOthers costs O(nodes).
func (x *expiry) ExpireOthers(now time.Time) {
	forgotten := 2*x.params.tick() + 1 // see revives
	for _, e := range x.nodes {
		if e.status == live && e != x.self {
			x.end(now, e, expired)
			e.at, e.grace = e.at-forgotten, e.grace+forgotten
		}
	}
}

// maxPullLeases is the maximum number of expiring leases that a message can pull. If 100 of 1,000 nodes are
// dead, a message can pull all of their leases.
const maxPullLeases = 100

// add pulls leases that expire soon, because another node may know a later heartbeat. It costs O(1) if no
// lease expires soon.
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
			x.pullTurn = next // where the next message begins
			break
		}
		d.PullLeases = append(d.PullLeases, x.order[next])
		d.news = true
		space -= handleBytes
		d.free -= handleBytes
	}
}
