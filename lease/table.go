package lease

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// core is the state that all protocols of a Set share. Each protocol embeds a pointer to the core.
type core struct {
	params Params
	time   clusterTime
	table
	spread spread
	drains drains
	stats  Stats
}

// table is everything that a Set knows about nodes.
type table struct {
	self      *entry
	known     map[Handle]*entry // all incarnations that the set remembers
	nodes     []*entry          // the latest incarnation of each node that had a lease in this set, sorted by id
	live      []*entry          // the live nodes, including this node, sorted by handle
	order     []Handle          // handles of the live nodes
	vitals    []*vitals         // vitals of the live nodes
	begun     []*entry          // live nodes that are not in live, order and vitals yet; placeBegun inserts them together
	applying  bool              // a message's heartbeats are being applied, so leases that begin are not inserted yet
	scattered bool              // leases began since gather, so vitals are not contiguous in memory
	census    census            // counts of the other live nodes
	lost      bool              // what Lost reports
	oldest    Stamp             // no live lease of another node was renewed before this; 0 = not computed
	requested map[Handle]time.Time
	peers     peers
	buckets   buckets
}

// entry is what a Set knows about an incarnation of a node.
type entry struct {
	*vitals
	rec     *Record
	handle  Handle
	rowAt   Stamp         // stamp of the latest heartbeat that was received as a row; 0 = none
	load    int64         // load in that heartbeat
	ended   time.Duration // when the entry was added or its lease ended, by clusterTime.since; the set forgets the entry some time later
	rare    *rare         // nil = empty
	size    int32         // of the encoded record; 0 = not computed yet
	crashed bool          // a confirmed failure ended the lease, and no heartbeat has renewed it since
	refused bool          // watchers were refused connections, so the process has ended and is not only unreachable
}

// vitals is the part of an entry that most messages read or write for every live node.
type vitals struct {
	at          Stamp         // stamp of the latest known heartbeat; rounded down if only its age was received
	grace       Stamp         // how much later the lease ends in this set because cluster time has stepped
	clock       time.Duration // the node's wall clock minus this node's
	agesSent    int32         // how many copies of the latest age this node has sent
	rowsSent    int32         // how many copies of the latest row with news this node has sent
	recordsSent int32         // how many copies of the record this node has sent
	table       uint32        // table digest in the latest heartbeat whose digest is known
	state       State         // state in the latest heartbeat that was received as a row, like clock
	inDigest    bool          // the news in the row is part of bucket digests
	status      status
}

// rare is the part of an entry that few nodes need. It is separate because each node of a large cluster has
// an entry for every other node.
type rare struct {
	rest     []byte    // fields of the latest row that this release does not know
	answered time.Time // when answerExpired last answered the node
	drawn    Stamp     // limits how many messages the node can request; see draws

	failureReports []failureReport // the latest reports, at most one per watcher
}

type status uint8

const (
	pending status = iota // a record without a heartbeat
	live
	expired // a newer heartbeat renews the lease
	retired // final: sent a leave message, or replaced by a later incarnation
)

// more returns the rare part of e, and creates it if necessary.
func (e *entry) more() *rare {
	if e.rare == nil {
		e.rare = new(rare)
	}
	return e.rare
}

func (e *entry) rest() []byte {
	if e.rare == nil {
		return nil
	}
	return e.rare.rest
}

func (e *entry) setRest(rest []byte) {
	if len(rest) > 0 || e.rare != nil {
		e.more().rest = rest
	}
}

func (e *entry) failureReports() []failureReport {
	if e.rare == nil {
		return nil
	}
	return e.rare.failureReports
}

func (e *entry) incarnation() Incarnation { return Incarnation{e.rec.ID, e.rec.Incarnation} }

// hadLease reports whether this set ever received a heartbeat of e that could begin its lease. Nodes don't
// relay other entries, because they would circulate forever.
func (e *entry) hadLease() bool { return e.rowAt != 0 }

// left reports whether e sent a leave message.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether this node relays the latest heartbeat of e, because e is live or the heartbeat is a
// leave message.
func (e *entry) spreads() bool { return e.status == live || e.left() }

// renewed returns when the lease was last renewed, including grace.
func (v *vitals) renewed() Stamp { return v.at + v.grace }

// heard records a heartbeat that the node sent at the given time, and reports whether the heartbeat is news.
func (v *vitals) heard(at Stamp) bool {
	if at <= v.at {
		return false
	}
	v.grace = max(0, v.renewed()-at)
	v.at, v.agesSent = at, 0
	return true
}

// precedes reports whether b is later than the latest heartbeat of e that was received as a row.
func (e *entry) precedes(b *Heartbeat) bool {
	return b.At > e.rowAt || (b.At == e.rowAt && b.State > e.state)
}

// stale reports whether the heartbeat b of known contains no news, because it is too old or the set already
// has its content. If the node is unknown, known is nil. A leave message is valid at any age, but the set
// ignores it after the time for which it remembers ended leases.
func (c *core) stale(now time.Time, known *entry, b *Heartbeat) bool {
	limit := c.params.TTL
	if b.State == Left {
		limit = c.params.forgetAfter()
	}
	switch {
	case millis(c.time.at(now)-b.renewed()) > limit:
		return true
	case known == nil || known.status == pending:
		return false
	default:
		return known.status == retired || (!known.precedes(b) && b.renewed() <= known.at)
	}
}

// age returns how long ago the lease of e was renewed.
func (c *core) age(now time.Time, e *entry) time.Duration {
	return millis(c.time.at(now) - e.renewed())
}

// meet adds an unknown incarnation. It returns nil if the set is full.
func (c *core) meet(now time.Time, h Handle, r *Record) *entry {
	if len(c.known) >= 2*MaxNodes {
		c.stats.RecordsRefused++
		return nil
	}
	e := &entry{vitals: &vitals{status: pending}, rec: r, handle: h, ended: c.time.since(now)}
	c.known[h] = e
	c.drains.plan(r)
	delete(c.requested, h)
	return e
}

// end ends the lease of e. If the lease has already ended, the set remembers it for longer.
func (c *core) end(now time.Time, e *entry, status status) {
	c.become(e, status)
	e.ended = c.time.since(now)
}

// become changes the status of e.
func (t *table) become(e *entry, status status) {
	if (e.status == live) == (status == live) {
		e.status = status
		return
	}
	t.differsIn(e)
	t.tally(e, -1)
	e.status = status
	t.tally(e, 1)
	if status == live {
		t.oldest = 0
		t.begun = append(t.begun, e)
		if !t.applying {
			t.placeBegun()
		}
		return
	}
	t.placeBegun()
	t.buckets.version++
	i, _ := slices.BinarySearch(t.order, e.handle)
	t.live, t.order = slices.Delete(t.live, i, i+1), slices.Delete(t.order, i, i+1)
	t.vitals = slices.Delete(t.vitals, i, i+1)
	alone := *e.vitals
	e.vitals = &alone // so that e does not keep the vitals of all other nodes in memory
	t.lost = true
}

// placeBegun inserts the leases that have just begun into the lists of live nodes. It costs O(nodes), no matter how
// many leases a message began. This matters when many nodes start at the same time, because each message then begins
// several leases.
func (t *table) placeBegun() {
	if len(t.begun) == 0 {
		return
	}
	slices.SortFunc(t.begun, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	places := make([]int, len(t.begun))
	handles, all := make([]Handle, len(t.begun)), make([]*vitals, len(t.begun))
	for i, e := range t.begun {
		places[i], _ = slices.BinarySearch(t.order, e.handle)
		handles[i], all[i] = e.handle, e.vitals
	}
	t.live, t.order, t.vitals = insert(t.live, places, t.begun), insert(t.order, places, handles), insert(t.vitals, places, all)
	t.scattered = true
	t.buckets.version++
	clear(t.begun)
	t.begun = t.begun[:0]
}

// insert inserts each added[i] before all[places[i]]. The places must ascend.
func insert[E any](all []E, places []int, added []E) []E {
	end := len(all)
	all = slices.Grow(all, len(added))[:end+len(added)]
	for i, place := range slices.Backward(places) {
		copy(all[place+i+1:], all[place:end])
		all[place+i] = added[i]
		end = place
	}
	return all
}

// gather makes the vitals of live nodes contiguous in memory, in the order in which messages use them. So
// applying a message about a thousand nodes is much faster.
func (t *table) gather() {
	if !t.scattered {
		return
	}
	t.scattered = false
	together := make([]vitals, len(t.live))
	for i, e := range t.live {
		together[i] = *e.vitals
		e.vitals, t.vitals[i] = &together[i], &together[i]
	}
}

// latest returns the latest incarnation of a node that had a lease in this set, or nil.
func (t *table) latest(id NodeID) *entry {
	if i, ok := t.searchNode(id); ok {
		return t.nodes[i]
	}
	return nil
}

// putNode makes e the latest incarnation of its node. It costs O(nodes) for a new id.
func (t *table) putNode(e *entry) {
	i, known := t.searchNode(e.rec.ID)
	if !known {
		t.nodes, t.peers.place = slices.Insert(t.nodes, i, e), -1
	}
	t.nodes[i] = e
}

func (t *table) searchNode(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(t.nodes, id, func(e *entry, id NodeID) int { return cmp.Compare(e.rec.ID, id) })
}

// departed returns the nodes that have sent a leave message. It costs O(nodes), or O(1) while all remembered
// nodes are live.
func (t *table) departed() (left []*entry) {
	if len(t.nodes) == len(t.live) {
		return nil
	}
	for _, e := range t.nodes {
		if e.left() {
			left = append(left, e)
		}
	}
	return left
}

// census caches counts of the other live nodes, and of their clocks relative to the cluster's clock, because
// a set needs these counts often.
type census struct {
	all            int
	active         int           // Active or Draining
	reachable      int           // have an address
	clock          time.Duration // the cluster's clock minus this node's; see skew.go
	earlier, equal int           // number of clocks that are earlier than clock or equal to it
}

// tally adds e to the census or removes it. It ignores this node and nodes that are not live. Call tally
// before and after each change of the status, state, clock or record of e.
func (t *table) tally(e *entry, by int) {
	if e != t.self && e.status == live {
		t.census.all += by
		if e.state == Active || e.state == Draining {
			t.census.active += by
		}
		if e.rec.Addr != "" {
			t.census.reachable += by
		}
		t.census.count(e.clock, by)
	}
}

func (c *census) count(clock time.Duration, by int) {
	switch {
	case clock < c.clock:
		c.earlier += by
	case clock == c.clock:
		c.equal += by
	}
}

// peers finds the i-th other live node that has an address.
type peers struct {
	place     int      // index of this node among all nodes; -1 = not computed
	reachable []*entry // sorted by id; nil = not computed
}

// peer returns the address of the i-th other live node that has an address, sorted by id. It costs O(1).
// After the live set has changed, it costs O(log n) once, or O(nodes) if the set remembers nodes that are not
// live.
func (t *table) peer(i int) string {
	if len(t.nodes) != len(t.live) || t.census.reachable != len(t.live)-1 {
		return t.reachable()[i].rec.Addr
	}
	if t.peers.place < 0 {
		t.peers.place, _ = t.searchNode(t.self.rec.ID)
	}
	if i >= t.peers.place {
		i++
	}
	return t.nodes[i].rec.Addr
}

func (t *table) reachable() []*entry {
	if t.peers.reachable == nil {
		t.peers.reachable = make([]*entry, 0, t.census.reachable)
		for _, e := range t.nodes {
			if e.status == live && e != t.self && e.rec.Addr != "" {
				t.peers.reachable = append(t.peers.reachable, e)
			}
		}
	}
	return t.peers.reachable
}

// AddrOf returns the gossip address of a live handle, or "".
func (t *table) AddrOf(h Handle) string {
	if e := t.known[h]; e != nil && e.status == live {
		return e.rec.Addr
	}
	return ""
}

// A set divides the live nodes into buckets by handle, so that a join or a leave changes a single bucket.

const (
	bucketSize = 64 // maximum average number of nodes per bucket
	maxBits    = 12
	maxBuckets = 1 << maxBits
)

// bucketBits returns how many bits select a bucket among n nodes.
func bucketBits(n int) uint8 { return uint8(min(maxBits, bits.Len(uint(max(0, n-1)/bucketSize)))) }

// buckets caches computed results for the buckets of the live set.
type buckets struct {
	pieces  [maxBits + 1][]piece // indexed by BucketID.Bits, computed as needed
	version uint32               // counts the changes of the order of live nodes
}

// piece caches computed results for a bucket.
type piece struct {
	from, to int32  // index range of the bucket's nodes among the live nodes
	version  uint32 // version of the order for which the piece is valid
	digested bool
	digest   uint64
}

// piece returns the cache for a bucket. The bucket can have any number of bits, because other nodes may
// divide their sets differently. piece costs O(log nodes) after a lease began or ended, otherwise O(1).
func (t *table) piece(id BucketID) *piece {
	if t.buckets.pieces[id.Bits] == nil {
		t.buckets.pieces[id.Bits] = make([]piece, 1<<id.Bits)
	}
	p := &t.buckets.pieces[id.Bits][id.Index]
	if p.version != t.buckets.version {
		from, _ := slices.BinarySearch(t.order, Handle(id.Index)<<(handleBits-id.Bits))
		to, _ := slices.BinarySearch(t.order, Handle(id.Index+1)<<(handleBits-id.Bits))
		p.from, p.to, p.version = int32(from), int32(to), t.buckets.version
	}
	return p
}

// bucket returns the index range of a bucket's nodes among the live nodes.
func (t *table) bucket(id BucketID) (from, to int) {
	p := t.piece(id)
	return int(p.from), int(p.to)
}

// digest returns the digest of a bucket. It costs O(nodes of the bucket) after the bucket changed, otherwise
// O(1).
func (t *table) digest(id BucketID) uint64 {
	p := t.piece(id)
	if !p.digested {
		p.digest, p.digested = digestOf(t.live[p.from:p.to]), true
	}
	return p.digest
}

// digestOf returns a hash of the nodes' handles, record versions and states.
func digestOf(nodes []*entry) (d uint64) {
	for _, e := range nodes {
		d ^= e.hash()
	}
	return d >> (64 - handleBits)
}

// differsIn invalidates cached results that depend on e. Call it when the lease of e begins or ends, and when
// the record or state of e changes.
func (t *table) differsIn(e *entry) {
	t.peers.reachable = nil
	for bits, pieces := range t.buckets.pieces {
		if pieces != nil {
			pieces[e.handle>>(handleBits-bits)].digested = false
		}
	}
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

// Knows reports whether a node is a member or was a member recently.
func (t *table) Knows(id NodeID) bool { return t.latest(id) != nil }
