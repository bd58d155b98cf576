package lease

import (
	"slices"
	"time"
)

// own is the protocol for this node's own incarnation, and for other processes with the same id.
type own struct {
	*core
	state      State     // from the next heartbeat on
	renewed    time.Time // when this node sent its latest heartbeat
	shown      Stamp     // stamp of the latest own heartbeat that another node is known to have
	claimed    Stamp     // latest stamp of this node's heartbeats before a step back of cluster time; 0 = there was no step back
	born       uint64    // the incarnation with which this process began
	former     *entry    // entry of the previous process under the same id; nil = none is known
	formerLeft bool      // the former process sent a leave message
	duplicate  duplicate
}

// duplicate is a later incarnation of this node's id that is not this process. If the duplicate keeps sending
// heartbeats, another process uses the id, and this process must stop. If the duplicate is silent, it was an
// earlier process of this node, from before the clock was set back. This process then takes an even later
// incarnation.
type duplicate struct {
	entry *entry // nil = none
	since time.Time
}

// Self returns the record of this node.
func (o *own) Self() *Record { return o.self.rec }

// Handle returns the handle of this node's current incarnation.
func (o *own) Handle() Handle { return o.self.handle }

// State returns the state that SetState set last.
func (o *own) State() State { return o.state }

// SetState sets the state of this node from its next heartbeat on, for other nodes and for its own View. The
// caller must send a heartbeat next. The state Left is final, because receivers ignore all later heartbeats
// of the incarnation.
func (o *own) SetState(state State) { o.state = state }

// Shown returns when this node sent the latest heartbeat that another node is known to have received. Shown
// learns this from the rows and ages in messages of other nodes. The result lags by up to TTL/16.
func (o *own) Shown() time.Time { return o.time.local(o.shown) }

// Renewed returns when this node last renewed its own lease.
func (o *own) Renewed() time.Time { return o.renewed }

// Update changes this node's record, except its identity. The caller must send a heartbeat next, so that
// other nodes request the new record.
func (o *own) Update(change func(*Record)) {
	rec := o.self.rec.clone()
	change(rec)
	rec.ID, rec.Incarnation, rec.Version = o.self.rec.ID, o.self.rec.Incarnation, o.self.rec.Version+1
	o.self.rec = rec
	o.self.size = 0
	o.drains.plan(rec)
	o.recordNews(o.self)
	o.differsIn(o.self)
}

// admit makes rec the record of this node, and begins a lease for its incarnation.
func (o *own) admit(now time.Time, rec *Record) {
	var table uint32
	load := NoLoad
	if o.self != nil {
		table, load = o.self.table, o.self.load
	}
	at := o.time.at(now)
	o.self = &entry{
		vitals: &vitals{state: o.state, at: at, table: table},
		rec:    rec, handle: rec.Handle(), rowAt: at, load: load,
	}
	o.renewed = now
	o.become(o.self, live)
	o.putNode(o.self)
	o.known[o.self.handle] = o.self
}

// renew renews this node's own lease. The argument at is the cluster time at now.
func (o *own) renew(now time.Time, at Stamp, load int64, table uint32) {
	if o.self.state != o.state {
		o.lost = true
		o.differsIn(o.self)
	}
	o.self.at, o.self.rowAt, o.renewed = at, at, now
	o.self.state, o.self.load, o.self.table = o.state, max(NoLoad, load), table
	o.self.agesSent = 0
	// Send the record with the heartbeat to a few members, in case one of them does not have it.
	o.self.recordsSent = min(o.self.recordsSent, int32(o.recordCopies())-1)
}

// NextHeartbeat returns the earliest time at which a new heartbeat of this node differs from its latest
// heartbeat even after rounding. Nodes that only receive rounded ages would not notice an earlier heartbeat.
// The result is now, or at most TTL/16 later.
func (o *own) NextHeartbeat(now time.Time) time.Time {
	tick := o.params.tick()
	next := (o.self.at/tick + 1) * tick
	if o.tablesInRows() || o.time.at(now) >= next {
		return now
	}
	return o.time.local(next)
}

// shift adjusts the stamps of this node's own heartbeats to a step of cluster time.
func (o *own) shift(by Stamp) {
	o.self.at += by
	o.self.rowAt += by
	o.shown += by
	if by < 0 {
		o.claimed = max(o.claimed, o.self.at-by)
	}
}

// SuspectedDuplicate returns the record of a later incarnation of this node's id while it is unknown whether
// its process runs, or nil. If the process runs, its next heartbeats make Apply return its record as
// [Effect.Duplicate]. If the process is silent for a TTL, this node takes an even later incarnation.
func (o *own) SuspectedDuplicate() *Record {
	if o.duplicate.entry == nil {
		return nil
	}
	return o.duplicate.entry.rec
}

// Former returns the record of the process that ran before this one under the same id, as members remember
// it, and whether it sent a leave message. The record is nil if no such process is known.
func (o *own) Former() (rec *Record, left bool) {
	if o.former == nil {
		return nil, false
	}
	return o.former.rec, o.formerLeft
}

// applyRecord handles a received record under this node's id.
func (o *own) applyRecord(now time.Time, r *Record) {
	handle := r.Handle()
	known := o.known[handle]
	met := known == nil
	if met {
		if known = o.meet(now, handle, r); known == nil {
			return
		}
		o.meetFormer(known)
	}
	switch {
	case known == o.self:
	case r.Incarnation < o.self.rec.Incarnation:
		o.become(known, retired)
	case met && (o.duplicate.entry == nil || r.Incarnation > o.duplicate.entry.rec.Incarnation):
		o.dropDuplicate()
		o.duplicate = duplicate{entry: known, since: now}
	case met:
		o.become(known, retired)
	}
}

// meetFormer records the latest incarnation of this node's id that belonged to another process. Such an
// incarnation is earlier than all incarnations of this process, or later than the current incarnation.
func (o *own) meetFormer(e *entry) {
	number := e.rec.Incarnation
	foreign := number < o.born || number > o.self.rec.Incarnation
	if foreign && (o.former == nil || number > o.former.rec.Incarnation) {
		o.former, o.formerLeft = e, false
	}
}

// applyHeartbeat handles a heartbeat with this node's own handle. A heartbeat that this node did not send comes from a
// copy of this process, for example on a cloned machine. applyHeartbeat recognizes it by one of three signs: it is later
// than this node's latest heartbeat, it is a leave message although this node has not left, or it has a record version
// that this node never used. A new incarnation distinguishes the two processes, and then applyDuplicate decides. The
// margin allows for a step of cluster time that other nodes took first. After a step back of cluster time, other nodes
// still relay heartbeats that this node sent before the step, whose stamps are not later than o.claimed.
func (o *own) applyHeartbeat(now time.Time, b *Heartbeat, e *Effect) {
	o.shown = max(o.shown, min(b.renewed(), o.self.at))
	later := millis(b.At-max(o.self.at, o.claimed)) > o.params.TTL/8 || b.Version > o.self.rec.Version
	if later || (b.State == Left && o.self.state != Left) {
		o.reincarnate(now, o.self.rec.Incarnation, e)
	}
}

// applyDuplicate handles a heartbeat of the duplicate. If the duplicate sent the heartbeat after this node
// first saw the duplicate, the duplicate runs. The margin allows for the transit time of older heartbeats. If
// the heartbeat is a leave message, nodes that received it reject this node's earlier incarnation. So this
// node takes a later incarnation.
func (o *own) applyDuplicate(now time.Time, b *Heartbeat, e *Effect) {
	if b.State == Left {
		past := o.duplicate.entry.rec.Incarnation
		o.dropDuplicate()
		o.reincarnate(now, past, e)
		return
	}
	o.duplicate.entry.ended = o.time.since(now)
	if sent := o.time.local(b.At); sent.Sub(o.duplicate.since) > o.params.TTL/8 {
		e.Duplicate = o.duplicate.entry.rec
	}
}

// noteLeave records that the previous process sent a leave message.
func (o *own) noteLeave(e *entry, b *Heartbeat) {
	if e != nil && e == o.former && b.State == Left {
		o.formerLeft = true
	}
}

// expire takes a later incarnation than the duplicate if the duplicate has been silent for a TTL, and reports
// whether it did.
func (o *own) expire(now time.Time) bool {
	d := o.duplicate
	if d.entry == nil || now.Sub(d.since) <= o.params.TTL {
		return false
	}
	o.dropDuplicate()
	o.reincarnate(now, d.entry.rec.Incarnation, &Effect{})
	return true
}

// deadline returns when this node takes a later incarnation than a silent duplicate, or the zero time if
// there is no duplicate.
func (o *own) deadline() time.Time {
	if o.duplicate.entry == nil {
		return time.Time{}
	}
	return o.duplicate.since.Add(o.params.TTL + time.Millisecond)
}

// reincarnate gives this node an incarnation later than past.
func (o *own) reincarnate(now time.Time, past uint64, e *Effect) {
	o.end(now, o.self, retired)
	rec := o.self.rec.clone()
	rec.Incarnation = uint64(max(0, now.UnixNano()))
	if past < maxIncarnation { // otherwise no later incarnation exists, so wait until other nodes forget the other incarnation
		rec.Incarnation = max(past+1, min(rec.Incarnation, maxIncarnation))
	}
	rec.Version++
	o.claimed = 0
	o.admit(now, rec)
	o.stats.Reincarnations++
	e.Changed, e.Urgent = true, true
	if d := o.duplicate.entry; d != nil && d.rec.Incarnation < rec.Incarnation {
		o.dropDuplicate()
	}
}

func (o *own) dropDuplicate() {
	if o.duplicate.entry != nil {
		o.become(o.duplicate.entry, retired)
	}
	o.duplicate = duplicate{}
}

// Peers appends to dst the gossip addresses of the other live nodes, sorted by id. It also appends the
// address of a suspected duplicate, because its answer proves that it runs even if no other node can reach
// it. Peers costs O(nodes).
func (o *own) Peers(dst []string) []string {
	n := o.PeerCount()
	dst = slices.Grow(dst, n)
	for i := range n {
		dst = append(dst, o.Peer(i))
	}
	return dst
}

// PeerCount returns how many addresses Peers returns. It costs O(1).
func (o *own) PeerCount() int {
	if o.addrOfDuplicate() != "" {
		return o.census.reachable + 1
	}
	return o.census.reachable
}

// Peer returns the i-th address that Peers returns. It costs O(1). After the live set has changed, it costs
// O(log n) once, or O(nodes) if the set remembers nodes that are not live.
func (o *own) Peer(i int) string {
	if i == o.census.reachable {
		return o.addrOfDuplicate()
	}
	return o.peer(i)
}

func (o *own) addrOfDuplicate() string {
	if d := o.duplicate.entry; d != nil && d.rec.Addr != o.self.rec.Addr {
		return d.rec.Addr
	}
	return ""
}
