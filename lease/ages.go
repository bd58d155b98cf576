package lease

import (
	"math/bits"
	"slices"
	"time"
)

// At rest, nearly all nodes hold the same live set. To a receiver with the same set, a
// node needs half a byte to say how old a lease is, so one packet renews a thousand
// leases. The ages are rounded down to a tick of cluster time, which is the same grid
// for all nodes: a relayed age loses nothing more, and never makes a lease younger.
//
// The set is cut into buckets by handle, so that one node that comes or goes stops the
// ages of its bucket alone. What a node says besides (its state, load and record)
// travels in rows.

const (
	bucketSize = 64 // nodes in a bucket, on average, at most
	ageLevels  = 16 // in half a byte
	unknownAge = ageLevels - 1
	maxBits    = 12
	maxBuckets = 1 << maxBits
)

// tick is the unit of ages on the wire.
func (s *Set) tick() Stamp { return max(1, stamps(s.params.TTL)/ageLevels) }

// bucketBits returns how many bits select a bucket among n nodes.
func bucketBits(n int) uint8 { return uint8(min(maxBits, bits.Len(uint(max(0, n-1)/bucketSize)))) }

// piece is what was computed of a bucket of this node's live set.
type piece struct {
	from, to int32  // where its nodes begin and end among the live ones
	order    uint32 // the version of the order for which this holds
	digested bool
	digest   uint64
}

// piece returns a bucket of this node's: O(1) unless a lease began or ended. Other nodes
// may cut their sets in any way.
func (s *Set) piece(id BucketID) *piece {
	if s.pieces[id.Bits] == nil {
		s.pieces[id.Bits] = make([]piece, 1<<id.Bits)
	}
	p := &s.pieces[id.Bits][id.Index]
	if p.order != s.reordered {
		from, _ := slices.BinarySearch(s.order, Handle(id.Index)<<(handleBits-id.Bits))
		to, _ := slices.BinarySearch(s.order, Handle(id.Index+1)<<(handleBits-id.Bits))
		p.from, p.to, p.order = int32(from), int32(to), s.reordered
	}
	return p
}

// bucket returns where the live nodes of a bucket begin and end.
func (s *Set) bucket(id BucketID) (from, to int) {
	p := s.piece(id)
	return int(p.from), int(p.to)
}

// digest returns the digest of a bucket of this node's: O(1) unless the bucket changed.
func (s *Set) digest(id BucketID) uint64 {
	p := s.piece(id)
	if !p.digested {
		p.digest, p.digested = digestOf(s.live[p.from:p.to]), true
	}
	return p.digest
}

// differsIn forgets what was computed of the live set and depends on e: its lease began
// or ended, or the node has another record or state.
func (s *Set) differsIn(e *entry) {
	s.peers = nil
	for bits, pieces := range s.pieces {
		if pieces != nil {
			pieces[e.handle>>(handleBits-bits)].digested = false
		}
	}
}

// digestOf identifies nodes with their record versions and states.
func digestOf(nodes []*entry) (d uint64) {
	for _, e := range nodes {
		d ^= e.hash()
	}
	return d >> (64 - handleBits)
}

func (e *entry) hash() uint64 {
	return mix(uint64(e.handle) + uint64(e.rec.Version)*0x9e3779b97f4a7c15 + uint64(e.state)<<60)
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// addAges adds the ages of as many buckets as fit, beginning where the last message
// ended, and reports whether any of them is news.
func (s *Set) addAges(m *Message, free *int, recipients int) (news bool) {
	width, limit := bucketBits(len(s.live)), int32(s.ageCopies())
	for range 1 << width {
		id := BucketID{Bits: width, Index: s.turn & (1<<width - 1)}
		from, to := s.bucket(id)
		size := bucketBytes(to - from)
		if size > *free {
			break
		}
		s.turn = id.Index + 1
		if from == to {
			continue
		}
		for _, v := range s.vitals[from:to] {
			if v == s.self.vitals {
				continue // its row is in every message
			}
			news = news || v.agesSent < limit
			v.agesSent += int32(recipients)
		}
		*free -= size
		m.Ages = append(m.Ages, s.agesOf(id, s.vitals[from:to], m.Stamp))
	}
	return news
}

func (s *Set) agesOf(id BucketID, nodes []*vitals, at Stamp) Bucket {
	b := Bucket{BucketID: id, Nodes: len(nodes), Digest: s.digest(id)}
	b.ages, b.same = make([]byte, (len(nodes)+1)/2), make([]byte, (len(nodes)+7)/8)
	tick := s.tick()
	latest := at / tick
	for i, v := range nodes {
		level := min(max(0, latest-v.at/tick), unknownAge)
		b.ages[i/2] |= byte(level) << (4 * (i & 1))
		if v.table == s.self.table {
			b.same[i/8] |= 1 << (i & 7)
		}
	}
	return b
}

// agesRounds returns how many messages of at most budget bytes the ages of all leases
// take.
func (s *Set) agesRounds(budget int) int {
	const otherBytes = 100 // what a message has besides, at least
	n := len(s.live)
	width := bucketBits(n)
	size := 1<<width*bucketBytes(0) + n*5/8
	return max(1, (size+budget-otherBytes-1)/max(1, budget-otherBytes))
}

// applyAges renews leases by their ages, bucket by bucket, where the sender's bucket is
// the same as this node's.
func (s *Set) applyAges(now time.Time, m *Message, e *Effect) {
	table := tableOf(m)
	for i := range m.Ages {
		b := &m.Ages[i]
		from, to := s.bucket(b.BucketID)
		if to-from != b.Nodes || s.digest(b.BucketID) != b.Digest {
			s.noteDifference(now, m.From, b.BucketID, e)
			continue
		}
		delete(s.differs, b.BucketID)
		s.applyBucket(m.Stamp, b, s.vitals[from:to], table)
	}
}

func (s *Set) applyBucket(stamp Stamp, b *Bucket, nodes []*vitals, table uint32) {
	tick, acknowledges := s.tick(), !s.tablesInRows() && (!s.spread.noRows || !s.spread.noRecords)
	latest := stamp / tick
	for i, v := range nodes {
		if acknowledges {
			v.acknowledged()
		}
		level := Stamp(b.ages[i/2] >> (4 * (i & 1)) & (ageLevels - 1))
		if level == unknownAge || !s.hears(v, (latest-level)*tick) {
			continue
		}
		s.stats.AgesApplied++
		switch same := b.same[i/8]>>(i&7)&1 != 0; {
		case same:
			v.table = table
		case v.table == table:
			v.table = 0 // it has changed since
		}
	}
}

// hears notes that another node knows a heartbeat of the node of v, sent at the given time. It
// reports whether that is news of another node than this one.
func (s *Set) hears(v *vitals, at Stamp) bool {
	if v == s.self.vitals {
		s.shown = max(s.shown, at)
		return false
	}
	return v.heard(at)
}

// difference is a bucket that other nodes hold differently.
type difference struct {
	since  time.Time // the first message with another digest, after the last with the same
	seen   time.Time // the last one
	pulled time.Time // when this node last pulled what it lacks of the bucket
}

// repairAfter is how long a difference lasts until this node pulls rows: news that
// is on its way arrives earlier.
func (s *Set) repairAfter() time.Duration { return s.params.TTL / 30 }

const (
	maxDiffering = 1 << 10 // differences in memory
	maxHashes    = 2 * bucketSize
	maxRepairs   = 3 // buckets that one message pulls: they fit into a packet
)

// noteDifference pulls from the sender what this node lacks of a bucket that has differed
// for long.
func (s *Set) noteDifference(now time.Time, from Handle, id BucketID, e *Effect) {
	d, ok := s.differs[id]
	if !ok {
		if len(s.differs) >= maxDiffering {
			return
		}
		d.since = now
	}
	d.seen = now
	wait := s.repairAfter()
	if now.Sub(d.since) >= wait && now.Sub(d.pulled) >= wait/2 && len(e.PullBuckets) < maxRepairs && s.AddrOf(from) != "" {
		d.pulled = now
		e.PullBuckets = append(e.PullBuckets, s.bucketDigest(id))
	}
	s.differs[id] = d
}

// bucketDigest has at most 128 nodes, which is all of a bucket as this node cuts its set. Of
// a bucket of a much smaller set it is a part, but two correct nodes agree nevertheless: in
// the messages of the node with the larger set, the other one sees the difference in buckets
// that both hold in full, pulls what it lacks of them, and is pulled from in turn.
func (s *Set) bucketDigest(id BucketID) BucketDigest {
	from, to := s.bucket(id)
	h := BucketDigest{BucketID: id, Hashes: make([]uint32, min(to-from, maxHashes))}
	for i := range h.Hashes {
		h.Hashes[i] = uint32(s.live[from+i].hash())
	}
	return h
}

// pullBack pulls from a node that pulls what it lacks of a bucket what this node lacks of
// it. Otherwise a lease that one node alone holds would never come to the others: they
// see a difference only in messages of that node.
func (s *Set) pullBack(now time.Time, m *Message, e *Effect) {
	for _, h := range m.PullBuckets[:min(len(m.PullBuckets), maxRepairs)] {
		own := s.bucketDigest(h.BucketID)
		lacks := slices.ContainsFunc(h.Hashes, func(hash uint32) bool { return !slices.Contains(own.Hashes, hash) })
		d := s.differs[h.BucketID]
		if !lacks || now.Sub(d.pulled) < s.repairAfter()/2 || len(e.PullBuckets) >= maxRepairs ||
			s.AddrOf(m.From) == "" || len(s.differs) >= maxDiffering {
			continue
		}
		if d.since.IsZero() {
			d.since = now
		}
		d.seen, d.pulled = now, now
		e.PullBuckets = append(e.PullBuckets, own)
		s.differs[h.BucketID] = d
	}
}
