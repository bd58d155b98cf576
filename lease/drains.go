package lease

import (
	"maps"
	"time"
)

// A planned drain is a change that all nodes make at one moment. The node that drains puts the moment into
// its record, in cluster time, which all nodes share to within the time that a message takes. The record
// spreads ahead of the moment, as any record does. When the moment comes, each node by itself takes the node
// for Draining, without a message.
//
// A node that gets the record later makes the change then. A node that crashes before the moment, or restarts, has no
// planned drain any more: its next record has none. Wall clocks play no part.

// drains is what a Set knows of planned drains.
type drains struct {
	passed Stamp // the drains planned until then have begun
	next   Stamp // the next one begins; 0 = none is planned
}

// plan takes in a record.
func (d *drains) plan(r *Record) {
	if r.Drains > d.passed && (d.next == 0 || r.Drains < d.next) {
		d.next = r.Drains
	}
}

func (d *drains) begun(r *Record) bool { return r.Drains != 0 && r.Drains <= d.passed }

// NextDrain returns when the next planned drain begins, or the zero time. O(1).
func (c *core) NextDrain() time.Time {
	if c.drains.next == 0 {
		return time.Time{}
	}
	return c.time.local(c.drains.next)
}

// BeginDrains begins the planned drains whose moment has come, and reports whether the live set changed: O(1), or
// O(known nodes) if there are any.
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
