package lease

import (
	"maps"
	"time"
)

// A planned drain takes effect on all nodes at the same time. The draining node puts the cluster time of the
// drain into its record. The record spreads before the drain begins, like any record. At the planned time,
// each node begins to show the draining node as Draining, without another message. Nodes begin at slightly
// different times, because their estimates of cluster time differ by up to the time that a message takes.
//
// A node that receives the record too late begins the drain when it receives the record. If the draining node
// crashes or restarts before the planned time, its drain is canceled, because its next record does not
// contain the plan. Planned drains do not depend on wall clocks.

// drains is the protocol for planned drains.
type drains struct {
	passed Stamp // drains planned up to this time have begun
	next   Stamp // when the next drain begins; 0 = none is planned
}

// plan schedules the planned drain in a record.
func (d *drains) plan(r *Record) {
	if r.Drains > d.passed && (d.next == 0 || r.Drains < d.next) {
		d.next = r.Drains
	}
}

func (d *drains) begun(r *Record) bool { return r.Drains != 0 && r.Drains <= d.passed }

// NextDrain returns when the next planned drain begins, or the zero time if no drain is planned. It costs
// O(1).
func (c *core) NextDrain() time.Time {
	if c.drains.next == 0 {
		return time.Time{}
	}
	return c.time.local(c.drains.next)
}

// BeginDrains begins the planned drains that are due, and reports whether the live set changed. It costs
// O(1), or O(known nodes) if a drain begins.
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
