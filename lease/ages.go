package lease

import (
	"slices"
	"time"
)

// While no node joins or leaves, nearly all nodes have the same live set. A receiver with the same live set
// as the sender only needs the ages of leases. An age takes half a byte, so a single packet renews a thousand
// leases. A sender rounds the time of a renewal down to a tick of cluster time. All nodes use the same ticks,
// so relaying an age loses no further precision and never makes a lease younger.
//
// Nodes send ages bucket by bucket. A node's state and load travel in rows, and its record travels
// separately.

const (
	ageLevels  = 16 // fits in half a byte
	unknownAge = ageLevels - 1
)

// tick is the unit of ages on the wire.
func (p *Params) tick() Stamp { return max(1, stamps(p.TTL)/ageLevels) }

// ages is the protocol that exchanges the ages of leases and repairs buckets that differ.
type ages struct {
	*core
	own     *own
	turn    uint32 // index of the bucket whose ages this node sends next
	differs map[BucketID]difference
}

// difference describes a bucket in which another node's live set differs from this node's.
type difference struct {
	since  time.Time // when a message first had a different digest since the last message with the same digest
	seen   time.Time // when a message last had a different digest
	pulled time.Time // when this node last pulled the bucket
}

// repairAfter is how long a difference must last before this node pulls rows. Ordinary gossip usually removes
// the difference earlier.
func (p *Params) repairAfter() time.Duration { return p.TTL / 30 }

const (
	maxDiffering = 1 << 10 // maximum number of differences in memory
	maxHashes    = 2 * bucketSize
	maxRepairs   = 3 // maximum number of buckets that a message pulls, so that it fits into a packet
)

// add adds the ages of as many buckets as fit. It begins where the last message ended.
func (a *ages) add(d *draft) {
	width, limit := bucketBits(len(a.live)), int32(a.rowCopies())
	for range 1 << width {
		id := BucketID{Bits: width, Index: a.turn & (1<<width - 1)}
		from, to := a.bucket(id)
		size := bucketBytes(to - from)
		if size > d.free {
			return
		}
		a.turn = id.Index + 1
		if from == to {
			continue
		}
		for _, v := range a.vitals[from:to] {
			if v == a.self.vitals {
				continue // this node's own row is in every message
			}
			d.news = d.news || v.agesSent < limit
			v.agesSent += int32(d.recipients)
		}
		d.free -= size
		d.Ages = append(d.Ages, a.agesOf(id, a.vitals[from:to], d.Stamp))
	}
}

func (a *ages) agesOf(id BucketID, nodes []*vitals, at Stamp) Bucket {
	b := Bucket{BucketID: id, Nodes: len(nodes), Digest: a.digest(id)}
	b.ages, b.same = make([]byte, (len(nodes)+1)/2), make([]byte, (len(nodes)+7)/8)
	tick := a.params.tick()
	latest := at / tick
	for i, v := range nodes {
		level := min(max(0, latest-v.at/tick), unknownAge)
		b.ages[i/2] |= byte(level) << (4 * (i & 1))
		if v.table == a.self.table {
			b.same[i/8] |= 1 << (i & 7)
		}
	}
	return b
}

// messages returns how many messages of at most budget bytes are needed for the ages of all leases.
func (a *ages) messages(budget int) int {
	const otherBytes = 100 // minimum size of the rest of a message
	n := len(a.live)
	width := bucketBits(n)
	size := 1<<width*bucketBytes(0) + n*5/8
	return max(1, (size+budget-otherBytes-1)/max(1, budget-otherBytes))
}

// apply renews leases by their ages, in the buckets in which the sender has the same live nodes as this node.
func (a *ages) apply(now time.Time, m *Message, e *Effect) {
	table := tableOf(m)
	for i := range m.Ages {
		b := &m.Ages[i]
		from, to := a.bucket(b.BucketID)
		if to-from != b.Nodes || a.digest(b.BucketID) != b.Digest {
			a.noteDifference(now, m.From, b.BucketID, e)
			continue
		}
		delete(a.differs, b.BucketID)
		a.applyBucket(m.Stamp, b, a.vitals[from:to], table)
	}
}

func (a *ages) applyBucket(stamp Stamp, b *Bucket, nodes []*vitals, table uint32) {
	tick, acknowledges := a.params.tick(), !a.tablesInRows() && (!a.spread.noRows || !a.spread.noRecords)
	latest := stamp / tick
	for i, v := range nodes {
		if acknowledges {
			v.acknowledged()
		}
		level := Stamp(b.ages[i/2] >> (4 * (i & 1)) & (ageLevels - 1))
		if level == unknownAge {
			continue
		}
		at := (latest - level) * tick
		if v == a.self.vitals {
			a.own.shown = max(a.own.shown, at)
			continue
		}
		if !v.heard(at) {
			continue
		}
		a.stats.AgesApplied++
		switch same := b.same[i/8]>>(i&7)&1 != 0; {
		case same:
			v.table = table
		case v.table == table:
			v.table = 0 // the table has changed since then
		}
	}
}

// noteDifference records that a bucket differs. If the bucket has differed for too long, it requests the
// nodes that this node lacks from the sender.
func (a *ages) noteDifference(now time.Time, from Handle, id BucketID, e *Effect) {
	d, ok := a.differs[id]
	if !ok {
		if len(a.differs) >= maxDiffering {
			return
		}
		d.since = now
	}
	d.seen = now
	wait := a.params.repairAfter()
	if now.Sub(d.since) >= wait && now.Sub(d.pulled) >= wait/2 && len(e.pullBuckets) < maxRepairs && a.AddrOf(from) != "" {
		d.pulled = now
		e.pullBuckets = append(e.pullBuckets, a.held(id))
	}
	a.differs[id] = d
}

// held returns the digest of this node's copy of a bucket, limited to 128 nodes. A bucket of this node's own set is
// very unlikely to exceed the limit. But a much smaller set has fewer and larger buckets, so held returns only a part
// of such a bucket. The two nodes still reach agreement, because messages of the node with the larger set refer to
// smaller buckets. The other node compares these buckets completely, and pulls what it lacks. Then the node with the
// larger set also pulls what it lacks.
func (a *ages) held(id BucketID) BucketDigest {
	from, to := a.bucket(id)
	h := BucketDigest{BucketID: id, Hashes: make([]uint32, min(to-from, maxHashes))}
	for i := range h.Hashes {
		h.Hashes[i] = uint32(a.live[from+i].hash())
	}
	return h
}

// pullBack handles a node that pulls a bucket from this node. In return, this node requests the nodes of the bucket
// that it lacks itself. Otherwise a lease that a single node knows might never spread, because the other nodes see the
// difference only in that node's messages.
func (a *ages) pullBack(now time.Time, m *Message, e *Effect) {
	for _, h := range m.PullBuckets[:min(len(m.PullBuckets), maxRepairs)] {
		held := a.held(h.BucketID)
		lacks := slices.ContainsFunc(h.Hashes, func(hash uint32) bool { return !slices.Contains(held.Hashes, hash) })
		d := a.differs[h.BucketID]
		if !lacks || now.Sub(d.pulled) < a.params.repairAfter()/2 || len(e.pullBuckets) >= maxRepairs ||
			a.AddrOf(m.From) == "" || len(a.differs) >= maxDiffering {
			continue
		}
		if d.since.IsZero() {
			d.since = now
		}
		d.seen, d.pulled = now, now
		e.pullBuckets = append(e.pullBuckets, held)
		a.differs[h.BucketID] = d
	}
}

// expire forgets differences that no message has shown for a TTL.
func (a *ages) expire(now time.Time) {
	for id, d := range a.differs {
		if now.Sub(d.seen) > a.params.TTL {
			delete(a.differs, id)
		}
	}
}
