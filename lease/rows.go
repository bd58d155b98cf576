package lease

import (
	"bytes"
	"time"
)

// rows is the protocol for records and heartbeats. Each node sends its own record and heartbeats, and other nodes relay
// them.
type rows struct {
	*core
	own      *own
	failures *failures
	skew     *skew
	revived  uint64   // leases of other nodes that were renewed after they had expired
	reached  uint64   // how many of the revived nodes kept their own leases, because they were only unreachable
	picked   []*entry // scratch of due
}

// Revived counts the leases of other nodes that were renewed after they had expired, and how many of them
// belong to nodes that were only unreachable. A node that was paused or in a minority returns as Settling,
// and does not count as unreachable.
func (r *rows) Revived() (all, reached uint64) { return r.revived, r.reached }

// apply merges the records and the heartbeats of a message.
func (r *rows) apply(now time.Time, m *Message, e *Effect) {
	for _, rec := range m.Records {
		r.applyRecord(now, rec, e)
	}
	lag := inRange(m.SentAt.Sub(time.UnixMilli(now.UnixMilli())))
	r.skew.apply(now, lag, m.Heartbeats)
	r.applying = true
	for i := range m.Heartbeats {
		b := &m.Heartbeats[i]
		r.applyHeartbeat(now, m.From, inRange(b.Clock+lag), b, e)
	}
	r.applying = false
	r.placeBegun()
}

func (r *rows) applyRecord(now time.Time, rec *Record, e *Effect) {
	if rec.ID == r.self.rec.ID {
		r.own.applyRecord(now, rec)
		return
	}
	handle := rec.Handle()
	known := r.known[handle]
	switch {
	case known == nil:
		if known = r.meet(now, handle, rec); known == nil {
			return
		}
	case known.status == retired || known.rec.ID != rec.ID || !rec.newer(known.rec):
		return
	default:
		r.tally(known, -1)
		known.rec, known.size = rec, 0
		r.tally(known, 1)
		r.drains.plan(rec)
		r.recordNews(known)
		r.rowNews(known, true)
		delete(r.requested, handle)
		if known.status == live {
			r.differsIn(known)
			e.Changed, e.Urgent, r.lost = true, true, true
		}
	}
	if r.superseded(rec) {
		r.end(now, known, retired)
	}
}

// superseded reports whether a later incarnation of the node has or had a lease in this set.
func (r *rows) superseded(rec *Record) bool {
	cur := r.latest(rec.ID)
	return cur != nil && cur.rec.Incarnation > rec.Incarnation
}

// applyHeartbeat merges a row. The clock argument is the wall clock of the row's node minus this node's wall
// clock.
func (r *rows) applyHeartbeat(now time.Time, from Handle, clock time.Duration, b *Heartbeat, e *Effect) {
	known := r.known[b.Handle]
	r.own.noteLeave(known, b)
	switch {
	case known == r.self:
		r.own.applyHeartbeat(now, b, e)
	case r.stale(now, known, b):
		r.stats.HeartbeatsStale++
		if known != nil && known.status == live { // the row may refer to a newer record
			r.pullNewer(now, from, known, b, e)
		}
	case r.skew.tooFarAhead(clock):
		r.stats.SkewRejected++
	case known == nil:
		if b.State != Left { // the leave message of an unknown node ends nothing
			r.pullRecord(now, from, b.Handle, e)
		}
	case known == r.own.duplicate.entry:
		r.own.applyDuplicate(now, b, e)
	case b.State == Left:
		r.applyLeave(now, clock, known, b, e)
	default:
		r.pullNewer(now, from, known, b, e)
		r.renew(now, clock, known, b, e)
	}
}

// renew renews the lease of known with the heartbeat b.
func (r *rows) renew(now time.Time, clock time.Duration, known *entry, b *Heartbeat, e *Effect) {
	was := known.state
	if !r.failures.allows(known, b.renewed()) {
		if known.precedes(b) {
			r.tally(known, -1)
			known.state, known.rowAt = b.State, b.At
			r.tally(known, 1)
		}
		return
	}
	if !r.replaceEarlier(now, known, e) {
		return
	}
	r.update(known, b, clock)
	if known.status != live {
		if known.status == expired {
			r.revived++
			if b.State != Settling {
				r.reached++
			}
		}
		r.recordNews(known)
		r.rowNews(known, true)
	}
	if known.status != live || known.state != was {
		e.Changed, e.Urgent = true, true
		r.lost = r.lost || was == Active || was == Draining
	}
	r.become(known, live)
	known.crashed = false
	r.stats.HeartbeatsApplied++
}

// applyLeave retires known and every earlier incarnation of its node, even if the leave message is the first
// heartbeat of known to arrive, or if the set already has MaxNodes nodes.
func (r *rows) applyLeave(now time.Time, clock time.Duration, known *entry, b *Heartbeat, e *Effect) {
	if known.status == live {
		e.Changed, e.Urgent = true, true
	}
	r.replaceEarlier(now, known, e)
	r.update(known, b, clock)
	r.rowNews(known, false)
	r.end(r.time.local(b.renewed()), known, retired)
}

// replaceEarlier makes known the latest incarnation of its node and retires the earlier one. It returns false
// if a later incarnation had a lease, or if the set already has MaxNodes nodes.
func (r *rows) replaceEarlier(now time.Time, known *entry, e *Effect) bool {
	if known.status == live {
		return true
	}
	cur := r.latest(known.rec.ID)
	switch {
	case cur == known:
		return true
	case cur == nil:
		if len(r.nodes) >= MaxNodes {
			r.stats.RecordsRefused++
			return false
		}
	case cur.rec.Incarnation > known.rec.Incarnation:
		r.end(now, known, retired)
		return false
	default:
		if cur.status == live {
			e.Changed, e.Urgent = true, true
		}
		r.end(now, cur, retired)
	}
	r.putNode(known)
	return true
}

// update stores b as the latest complete heartbeat of e, and schedules it for relaying if it contains news.
// In a large set, table digests only travel with the ages, because all nodes get a new table at the same
// time.
func (r *rows) update(e *entry, b *Heartbeat, clock time.Duration) {
	if e.precedes(b) {
		switch {
		case b.Load != e.load, !bytes.Equal(b.rest, e.rest()), b.Table != e.table && r.tablesInRows():
			r.rowNews(e, false)
		case b.State != e.state:
			r.rowNews(e, true)
		}
		if b.State != e.state {
			r.differsIn(e)
		}
		if int(e.rowsSent) < r.rowCopies() {
			r.spread.noRows = false
		}
		r.tally(e, -1)
		e.rowAt, e.state, e.table, e.load = b.At, b.State, b.Table, b.Load
		e.setRest(b.rest)
		e.clock = clock
		r.tally(e, 1)
	}
	e.heard(b.renewed())
}

// requestInterval is the minimum time between two requests for the same record.
const requestInterval = 500 * time.Millisecond

// pullRecord requests the record of h from the sender, unless this node has just requested it. The sender
// must be live, because any process can put a handle into a message.
func (r *rows) pullRecord(now time.Time, from, h Handle, e *Effect) {
	if at, ok := r.requested[h]; (ok && now.Sub(at) < requestInterval) || r.AddrOf(from) == "" {
		return
	}
	if len(r.requested) >= MaxNodes {
		return // until expire frees space
	}
	r.requested[h] = now
	e.pullRecords = append(e.pullRecords, h)
}

// pullNewer requests the record of a node if the node's heartbeat refers to a newer record.
func (r *rows) pullNewer(now time.Time, from Handle, known *entry, b *Heartbeat, e *Effect) {
	if b.Version > known.rec.Version {
		r.pullRecord(now, from, b.Handle, e)
	}
}

// expire forgets requests that were sent long enough ago to be repeated.
func (r *rows) expire(now time.Time) {
	for h, at := range r.requested {
		if now.Sub(at) > requestInterval {
			delete(r.requested, h)
		}
	}
}

// due returns the nodes whose rows contain news that this node has not sent often enough. The result is only
// valid until the next call.
func (r *rows) due(now time.Time) []*entry {
	if r.spread.noRows {
		return nil
	}
	copies, oldest := int32(r.rowCopies()), r.time.at(now)-stamps(r.params.TTL)
	r.spread.begin()
	for i, v := range r.vitals {
		if v.rowsSent < copies && v.at >= oldest && v != r.self.vitals {
			r.spread.offer(candidate{sent: v.rowsSent, at: r.live[i].rowAt, handle: r.order[i], place: i})
		}
	}
	departed := r.departed()
	for i, e := range departed {
		if e.rowsSent < copies && e.at >= oldest {
			r.spread.offer(candidate{sent: e.rowsSent, at: e.rowAt, handle: e.handle, place: len(r.live) + i})
		}
	}
	clear(r.picked) // so that forgotten nodes can be garbage-collected
	r.picked = r.picked[:0]
	for _, c := range r.spread.candidates {
		if c.place < len(r.live) {
			r.picked = append(r.picked, r.live[c.place])
		} else {
			r.picked = append(r.picked, departed[c.place-len(r.live)])
		}
	}
	r.spread.noRows = len(r.picked) == 0
	return r.picked
}

// add adds rows while they fit, and returns the rows that did not fit.
func (r *rows) add(d *draft, due []*entry) (rest []*entry) {
	for i, e := range due {
		if !d.heartbeat(e) {
			return due[i:]
		}
		d.news = true
	}
	return nil
}

// addRecords adds the least sent records, up to a third of the draft. Until this node has sent its own record
// often enough, the own record comes first, because no other node can introduce it.
func (r *rows) addRecords(d *draft) {
	space := d.free / 3
	add := func(e *entry) {
		if size := e.recordSize(); size <= space {
			d.record(e)
			d.news = true
			space -= size
		}
	}
	if r.self.recordsSent < int32(r.recordCopies()) {
		space = max(space, min(d.free, MaxRecordBytes))
		add(r.self)
	}
	if r.spread.noRecords {
		return
	}
	copies := int32(r.recordCopies())
	r.spread.begin()
	for i, v := range r.vitals {
		if v.recordsSent < copies && v != r.self.vitals {
			r.spread.offer(candidate{sent: v.recordsSent, handle: r.order[i], place: i})
		}
	}
	r.spread.noRecords = len(r.spread.candidates) == 0
	for _, c := range r.spread.candidates {
		add(r.live[c.place])
	}
}
