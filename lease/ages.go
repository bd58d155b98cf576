package lease

import (
	"slices"
	"time"
)

// At rest, nearly all nodes hold the same live set. For a receiver with the same set, the age of a lease
// takes half a byte, so one packet renews a thousand leases. Ages are rounded down to a tick of cluster time.
// All nodes use the same ticks, so relaying an age loses nothing more and never makes a lease younger.
//
// Ages are sent bucket by bucket. Everything else about a node (its state, load and record) travels in rows.

const (
	ageLevels  = 16 // fits in half a byte
	unknownAge = ageLevels - 1
)

// tick is the unit of ages on the wire.
func (p *Params) tick() Stamp { return max(1, stamps(p.TTL)/ageLevels) }

// ages is the exchange of the ages of leases, and the repair of buckets that differ.
type ages struct {
	*core
	own     *own
	turn    uint32 // the bucket whose ages are sent next
	differs map[BucketID]difference
}

// difference is a bucket that other nodes hold differently.
type difference struct {
	since  time.Time // first message with another digest since the last with the same digest
	seen   time.Time // the last such message
	pulled time.Time // when this node last pulled what it lacks of the bucket
}

// repairAfter is how long a difference lasts before this node pulls rows. News that is on its way arrives
// earlier.
func (p *Params) repairAfter() time.Duration { return p.TTL / 30 }

const (
	maxDiffering = 1 << 10 // differences in memory
	maxHashes    = 2 * bucketSize
	maxRepairs   = 3 // buckets that one message pulls: they fit into a packet
)

// add adds the ages of as many buckets as fit, beginning where the last message ended.
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
				continue // its row is in every message
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
	const otherBytes = 100 // what else a message contains, at least
	n := len(a.live)
	width := bucketBits(n)
	size := 1<<width*bucketBytes(0) + n*5/8
	return max(1, (size+budget-otherBytes-1)/max(1, budget-otherBytes))
}

// apply renews leases by their ages, for the buckets that are the same at the sender and at this node.
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
			v.table = 0 // it has changed since then
		}
	}
}

// noteDifference pulls from the sender what this node lacks of a bucket that has differed for too long.
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

// held returns what this node holds of a bucket: at most 128 nodes, which is a whole bucket of this node's
// set. If the bucket is from a much smaller set, it is only a part. Two correct nodes still come to agree:
// messages of the node with the larger set show the other node the differences in buckets that both hold
// completely. The other node pulls what it lacks of these, and is then pulled from.
func (a *ages) held(id BucketID) BucketDigest {
	from, to := a.bucket(id)
	h := BucketDigest{BucketID: id, Hashes: make([]uint32, min(to-from, maxHashes))}
	for i := range h.Hashes {
		h.Hashes[i] = uint32(a.live[from+i].hash())
	}
	return h
}

// pullBack pulls what this node lacks of a bucket from a node that pulls what it lacks of the same bucket.
// Otherwise a lease that only one node holds might never reach the others, because they see the difference
// only in messages of that node.
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

// expire forgets differences that no message shows any more.
func (a *ages) expire(now time.Time) {
	for id, d := range a.differs {
		if now.Sub(d.seen) > a.params.TTL {
			delete(a.differs, id)
		}
	}
}
