package lease

import (
	"math/bits"
	"slices"
	"sort"
)

// All news spreads alike: a node sends each piece a number of times to random members, and first the piece that it
// sent least. After 3·log2(n) random recipients per node, the chance that a given node has not received it is far below
// one in a million, even at a packet loss of 20 %. Records are longer, and nodes request the records that they miss.

func (t *table) rowCopies() int    { return 3 * bits.Len(uint(len(t.nodes))) }
func (t *table) recordCopies() int { return bits.Len(uint(len(t.nodes))) }

// tablesInRows reports whether the set is so small that rows with new tables cost little.
func (t *table) tablesInRows() bool { return len(t.nodes) <= bucketSize }

// spread chooses the news that goes into a message.
type spread struct {
	noRows, noRecords bool // there was nothing to send when this node last looked

	candidates []candidate // of the present choice
}

// candidate is a piece of news. It has no pointer: most candidates of a large set
// are replaced, which would cost the garbage collector more than the comparison.
type candidate struct {
	sent   int32 // copies
	at     Stamp
	handle Handle
	place  int // where the caller finds it
}

// before orders candidates: those come first that were sent least, then the latest ones.
func (c candidate) before(o candidate) bool {
	switch {
	case c.sent != o.sent:
		return c.sent < o.sent
	case c.at != o.at:
		return c.at > o.at
	}
	return c.handle < o.handle
}

// maxCandidates is more pieces of news than a packet holds.
const maxCandidates = 100

// begin begins a choice.
func (s *spread) begin() { s.candidates = s.candidates[:0] }

// offer adds c to the candidates, if it is among the first. Equal ones stay in order.
func (s *spread) offer(c candidate) {
	if len(s.candidates) == maxCandidates {
		if !c.before(s.candidates[maxCandidates-1]) {
			return
		}
		s.candidates = s.candidates[:maxCandidates-1]
	}
	place := sort.Search(len(s.candidates), func(i int) bool { return c.before(s.candidates[i]) })
	s.candidates = slices.Insert(s.candidates, place, c)
}

// rowNews has the row of e sent again. News that is part of bucket digests is sent until
// other nodes show that they have it.
func (c *core) rowNews(e *entry, inDigest bool) {
	e.rowsSent, e.inDigest = 0, inDigest
	c.spread.noRows = false
}

// recordNews has the record of e sent again.
func (c *core) recordNews(e *entry) {
	e.recordsSent = 0
	c.spread.noRecords = false
}

// acknowledged notes that another node knows the same of the node as this one. In a large set,
// that counts as three copies: a rumor ends when it meets nodes that know it, as in
// Demers et al., "Epidemic Algorithms for Replicated Database Maintenance" (1987). A
// node that missed the news is repaired.
func (v *vitals) acknowledged() {
	const enough = 1 << 20 // more than any news is sent; without a bound the counts overflow after years
	if v.recordsSent < enough {
		v.recordsSent += 3
	}
	if v.inDigest && v.rowsSent < enough {
		v.rowsSent += 3
	}
}

// draft is a message in the making.
type draft struct {
	*Message
	core       *core
	free       int  // bytes that are left
	recipients int  // to which it goes; 0 = it is an answer to one node, and does not count as a copy
	news       bool // it has something that was not sent often enough
}

// messageOverhead is an upper bound for a message without heartbeats, records, ages and
// pulls. Founders, a challenge or an echo, Extra and Handoff come on top of it.
const messageOverhead = 92

// heartbeat adds the row of e if it fits.
func (d *draft) heartbeat(e *entry) bool {
	b := Heartbeat{
		Handle: e.handle, At: e.rowAt, Renewed: e.at, State: e.state, Version: e.rec.Version,
		Clock: e.clock, Load: e.load, Table: e.table, rest: e.rest(),
	}
	size := rowBytes(&b, d.Stamp, d.core.self.table) // the message has the row of this node
	if size > d.free {
		return false
	}
	d.free -= size
	d.Heartbeats = append(d.Heartbeats, b)
	e.rowsSent += int32(d.recipients)
	copies := uint64(max(1, d.recipients))
	if e == d.core.self {
		d.core.stats.HeartbeatsSent += copies
	} else {
		d.core.stats.HeartbeatsRelayed += copies
	}
	return true
}

// record adds the record of e. The caller knows that it fits.
func (d *draft) record(e *entry) {
	d.Records = append(d.Records, e.rec)
	d.free -= e.recordSize()
	e.recordsSent += int32(d.recipients)
}

const maxHeartbeatBytes = maxRowFields + maxRestBytes

func (e *entry) recordSize() int {
	if e.size == 0 {
		e.size = int32(recordBytes(e.rec))
	}
	return int(e.size)
}
