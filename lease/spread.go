package lease

import (
	"math/bits"
	"slices"
	"sort"
)

// All news spreads in the same way: a node sends each piece a number of times to random members, beginning
// with the piece that it has sent least. After 3·log2(n) random recipients per node, the chance that a given
// node has not received it is far below one in a million, even with a packet loss of 20 %. Records are sent
// less often, because they are longer and nodes request the records that they miss.

func (t *table) rowCopies() int    { return 3 * bits.Len(uint(len(t.nodes))) }
func (t *table) recordCopies() int { return bits.Len(uint(len(t.nodes))) }

// tablesInRows reports whether the set is so small that rows with new tables cost little.
func (t *table) tablesInRows() bool { return len(t.nodes) <= bucketSize }

// spread chooses the news that goes into a message.
type spread struct {
	noRows, noRecords bool // there was nothing to send at the last check

	candidates []candidate // of the present choice
}

// candidate is a piece of news. It has no pointer: most candidates of a large set
// are replaced, which would cost the garbage collector more than the comparison.
type candidate struct {
	sent   int32 // number of copies sent
	at     Stamp
	handle Handle
	place  int // where the caller finds it
}

// before orders candidates: the least sent come first, and of those the latest.
func (c candidate) before(o candidate) bool {
	switch {
	case c.sent != o.sent:
		return c.sent < o.sent
	case c.at != o.at:
		return c.at > o.at
	}
	return c.handle < o.handle
}

// maxCandidates is more than the pieces of news that fit into a packet.
const maxCandidates = 100

// begin begins a choice.
func (s *spread) begin() { s.candidates = s.candidates[:0] }

// offer adds c to the candidates if it is one of the first. Equal candidates keep their order.
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

// rowNews makes the row of e news, so that it is sent again. News that is part of bucket digests is sent
// until other nodes show that they have it.
func (c *core) rowNews(e *entry, inDigest bool) {
	e.rowsSent, e.inDigest = 0, inDigest
	c.spread.noRows = false
}

// recordNews makes the record of e news, so that it is sent again.
func (c *core) recordNews(e *entry) {
	e.recordsSent = 0
	c.spread.noRecords = false
}

// acknowledged notes that another node knows the same about this node as we do. In a large set, that counts
// as three copies, because a rumor should end when it meets nodes that know it, as in Demers et al.,
// "Epidemic Algorithms for Replicated Database Maintenance" (1987). A node that missed the news gets it by
// repair.
func (v *vitals) acknowledged() {
	const enough = 1 << 20 // more than any news is sent; without a limit the counts would overflow after years
	if v.recordsSent < enough {
		v.recordsSent += 3
	}
	if v.inDigest && v.rowsSent < enough {
		v.rowsSent += 3
	}
}

// draft is a message that is being composed.
type draft struct {
	*Message
	core       *core
	free       int  // free bytes
	recipients int  // number of nodes it goes to; 0 = it is an answer to one node, and does not count as a copy
	news       bool // it has something that was not sent often enough
}

// messageOverhead is an upper bound for the size of a message without heartbeats, records, ages and pulls,
// and without founders, a challenge or an echo, Extra and Handoff.
const messageOverhead = 92

// heartbeat adds the row of e if it fits.
func (d *draft) heartbeat(e *entry) bool {
	b := Heartbeat{
		Handle: e.handle, At: e.rowAt, Renewed: e.at, State: e.state, Version: e.rec.Version,
		Clock: e.clock, Load: e.load, Table: e.table, rest: e.rest(),
	}
	size := rowBytes(&b, d.Stamp, d.core.self.table) // the message contains the row of this node
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

// record adds the record of e. The caller must know that it fits.
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
