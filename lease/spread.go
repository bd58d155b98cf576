package lease

import (
	"math/bits"
	"slices"
	"sort"
)

// All news spreads in the same way. A node sends each piece of news several times to random members, and
// sends the least sent piece first. If each node sends a piece to 3·log2(n) random members, the probability
// that a given node misses it is far below one in a million, even with 20 % packet loss. Nodes send records
// less often, because records are longer and nodes request the records that they miss.

func (t *table) rowCopies() int    { return 3 * bits.Len(uint(len(t.nodes))) }
func (t *table) recordCopies() int { return bits.Len(uint(len(t.nodes))) }

// tablesInRows reports whether the set is small enough to send table digests in rows.
func (t *table) tablesInRows() bool { return len(t.nodes) <= bucketSize }

// spread chooses the news that goes into a message.
type spread struct {
	noRows, noRecords bool // there was nothing to send at the last check

	candidates []candidate // for the current choice
}

// candidate is a piece of news that may go into a message. It contains no pointer, because a large set
// replaces most candidates, and pointers would cost the garbage collector more time than the comparisons
// take.
type candidate struct {
	sent   int32 // number of copies sent
	at     Stamp
	handle Handle
	place  int // index by which the caller finds the piece of news
}

// before orders candidates by the number of sent copies, fewest first, and then by time, latest first.
func (c candidate) before(o candidate) bool {
	switch {
	case c.sent != o.sent:
		return c.sent < o.sent
	case c.at != o.at:
		return c.at > o.at
	}
	return c.handle < o.handle
}

// maxCandidates is greater than the number of pieces of news that fit into a packet.
const maxCandidates = 100

// begin starts a new choice.
func (s *spread) begin() { s.candidates = s.candidates[:0] }

// offer adds c to the candidates if c is among the first maxCandidates. Equal candidates keep their order.
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

// rowNews marks the row of e as news, so that this node sends it again. If the news is part of a bucket
// digest, the node can stop sending it early, as soon as enough nodes have shown the same digest.
func (c *core) rowNews(e *entry, inDigest bool) {
	e.rowsSent, e.inDigest = 0, inDigest
	c.spread.noRows = false
}

// recordNews marks the record of e as news, so that this node sends it again.
func (c *core) recordNews(e *entry) {
	e.recordsSent = 0
	c.spread.noRecords = false
}

// acknowledged records that another node already has the same news. In a large set, an acknowledgment counts as three
// sent copies, so that nodes stop spreading news that other nodes already know, as in Demers et al., "Epidemic
// Algorithms for Replicated Database Maintenance" (1987). A node that missed the news receives it by anti-entropy
// repair.
func (v *vitals) acknowledged() {
	const enough = 1 << 20 // more copies than any news needs; without a limit the counts would overflow after years
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
	recipients int  // number of nodes that get the message; 0 = an answer to a single node, which does not count as a copy
	news       bool // the message contains news that this node has not sent often enough
}

// messageOverhead is an upper bound for the size of a message that has no heartbeats, records, ages, pulls,
// founders, challenge, echo, Extra or Handoff.
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

// record adds the record of e. The caller must check that it fits.
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
