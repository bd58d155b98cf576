package lease

import (
	"maps"
	"time"
)

// A planned drain is a change that all nodes make at the same moment. The node that drains puts the moment
// into its record, in cluster time, on which all nodes agree to within the time that a message takes. The
// record spreads before the moment, like any record. When the moment comes, each node by itself begins to
// treat the node as Draining, without a message.
//
// A node that gets the record too late makes the change when it gets it. If the node that drains crashes or
// restarts before the moment, its plan is gone, because its next record does not have it. Wall clocks play no
// part.

// drains is what a Set knows about planned drains.
type drains struct {
	passed Stamp // drains planned up to this moment have begun
	next   Stamp // when the next one begins; 0 = none is planned
}

// plan notes the planned drain of a record.
func (d *drains) plan(r *Record) {
	if r.Drains > d.passed && (d.next == 0 || r.Drains < d.next) {
		d.next = r.Drains
	}
}

func (d *drains) begun(r *Record) bool { return r.Drains != 0 && r.Drains <= d.passed }

// NextDrain returns when the next planned drain begins, or the zero time. It costs O(1).
func (c *core) NextDrain() time.Time {
	if c.drains.next == 0 {
		return time.Time{}
	}
	return c.time.local(c.drains.next)
}

// BeginDrains begins the planned drains whose moment has come, and reports whether the live set changed. It
// costs O(1), or O(known nodes) if a drain begins.
func (c *core) BeginDrains(now time.Time) (changed bool) {
	at, d := c.time.at(now), &c.drains
	if d.next == 0 || at < d.next {
		return false
	}
	was := d.passed
	d.passed, d.next = at, 0
	for e := range maps.Values(c.known) {
		d.plan(e.rec)
		if e.status == live && e.state == Active && e.rec.Drains > was && d.begun(e.rec) {
			changed, c.lost = true, true
		}
	}
	return changed
}

// Drains reports whether the planned drain of this node has begun.
func (c *core) Drains() bool { return c.drains.begun(c.self.rec) }
