package lease

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// core is what the protocols of a Set share. Each of them embeds a pointer to it.
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
	known     map[Handle]*entry // all incarnations that are remembered
	nodes     []*entry          // the latest incarnation of each node that had a lease here, sorted by id
	live      []*entry          // the live nodes, including this one, by handle
	order     []Handle          // their handles
	vitals    []*vitals         // their vitals
	begun     []*entry          // live nodes that are not in live, order and vitals yet; they are inserted together
	applying  bool              // the heartbeats of a message are being applied: leases that begin are not inserted yet
	scattered bool              // leases began since gather, so vitals are not contiguous in memory
	census    census            // counts of the live nodes, without this node
	lost      bool              // a member ended or stopped being Active since the last call of Lost
	oldest    Stamp             // renewal of the oldest live lease of another node, or earlier; 0 = to be computed
	requested map[Handle]time.Time
	peers     peers
	buckets   buckets
}

// entry is what a Set knows about an incarnation of a node.
type entry struct {
	*vitals
	rec     *Record
	handle  Handle
	rowAt   Stamp         // of the latest heartbeat that was received whole; 0 = none
	load    int64         // in that heartbeat
	ended   time.Duration // when the entry was added or its lease ended, by clusterTime.since; it is forgotten some time after that
	rare    *rare         // nil = empty
	size    int32         // of the encoded record; 0 = not computed yet
	crashed bool          // the lease was ended by a confirmed failure, and not renewed since
	refused bool          // connections to the process were refused, so it has ended and is not only cut off
}

// vitals is the part of an entry that most messages read or write, for all live nodes.
type vitals struct {
	at          Stamp         // of the latest known heartbeat; rounded down if only its age was received
	grace       Stamp         // how much later the lease ends here because cluster time has stepped
	clock       time.Duration // the node's wall clock minus this node's
	agesSent    int32         // copies of the latest age sent by this node
	rowsSent    int32         // copies of the latest row with news sent by this node
	recordsSent int32         // copies of the record sent by this node
	table       uint32        // of the latest heartbeat whose table is known
	state       State         // in the latest heartbeat that was received whole, like clock
	inDigest    bool          // the news in the row is part of digests
	status      status
}

// rare is the part of an entry that few nodes need. It is separate because each node of a large cluster has
// an entry for every other node.
type rare struct {
	rest     []byte    // fields of the latest row that this program does not know
	answered time.Time // when answerExpired last answered the node
	drawn    Stamp     // when the messages that the node got by requests have been paid off; see draws

	failureReports []failureReport // the latest ones, at most one of each node
}

type status uint8

const (
	pending status = iota // a record without a heartbeat
	live
	expired // a newer heartbeat renews the lease
	retired // final: leave message, or replaced by a later incarnation
)

// more returns the rare part of e for changes.
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

// hadLease reports whether this set received a heartbeat of e while its lease could still begin. Other leases
// are not relayed, or they would circulate forever.
func (e *entry) hadLease() bool { return e.rowAt != 0 }

// left reports whether e sent a leave message.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether the latest heartbeat of e is relayed: e is live, or the heartbeat is a
// leave message.
func (e *entry) spreads() bool { return e.status == live || e.left() }

// renewed returns when the lease was renewed.
func (v *vitals) renewed() Stamp { return v.at + v.grace }

// heard notes a heartbeat that the node sent at the given time, and reports whether it is news.
func (v *vitals) heard(at Stamp) bool {
	if at <= v.at {
		return false
	}
	v.grace = max(0, v.renewed()-at)
	v.at, v.agesSent = at, 0
	return true
}

// precedes reports whether b is later than the node's latest whole heartbeat.
func (e *entry) precedes(b *Heartbeat) bool {
	return b.At > e.rowAt || (b.At == e.rowAt && b.State > e.state)
}

// stale reports whether b, a heartbeat of known, has no news, because it is too old or its content is already
// known. known is nil for an unknown node. A leave message is valid at any age, and worth storing for as long
// as ended leases are remembered.
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

// age returns the age of the lease of e.
func (c *core) age(now time.Time, e *entry) time.Duration {
	return millis(c.time.at(now) - e.renewed())
}

// meet adds an incarnation that is not known yet. It returns nil if there is no room.
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

// end ends the lease of e, or keeps it ended.
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
	e.vitals = &alone // so that e does not keep the vitals of all others in memory
	t.lost = true
}

// placeBegun inserts the leases that have just begun among the live ones. It costs O(nodes), no matter how
// many leases a message began. When many nodes start at once, each message begins some.
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

// gather moves the vitals of live nodes next to each other in memory, in the order in which messages use
// them. That makes applying a message about a thousand nodes much faster.
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

// latest returns the latest incarnation of a node that had a lease here, or nil.
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

// departed returns the nodes that have sent a leave message. It costs O(1) while all remembered nodes are
// live, otherwise O(nodes).
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

// census has counts of the other live nodes, and of their clocks relative to the cluster's, because these are
// needed all the time.
type census struct {
	all            int
	active         int           // Active or Draining
	reachable      int           // have an address
	clock          time.Duration // the cluster's minus this node's; see skew.go
	earlier, equal int           // number of clocks that are earlier than clock or equal to it
}

// tally adds e to the census, or removes it, if e is another live node. Call it before and after each change
// of its status, state, clock or record.
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

// peers finds the other live nodes with an address by their number.
type peers struct {
	place     int      // index of this node among all nodes; -1 = to be computed
	reachable []*entry // by id; nil = to be computed
}

// peer returns the address of the i-th other live node with an address, by id. It costs O(1). After a change
// of the live set it costs O(log n), or O(nodes) if the set remembers nodes that are not live.
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

// The live set is divided into buckets by handle, so that a node that comes or goes only changes its own
// bucket.

const (
	bucketSize = 64 // maximum of the average number of nodes in a bucket
	maxBits    = 12
	maxBuckets = 1 << maxBits
)

// bucketBits returns how many bits select a bucket among n nodes.
func bucketBits(n int) uint8 { return uint8(min(maxBits, bits.Len(uint(max(0, n-1)/bucketSize)))) }

// buckets caches what was computed for the buckets of the live set.
type buckets struct {
	pieces  [maxBits + 1][]piece // by BucketID.Bits, computed as needed
	version uint32               // counts the changes of the order of live nodes
}

// piece is what was computed for a bucket.
type piece struct {
	from, to int32  // where its nodes begin and end among the live ones
	version  uint32 // version of the order for which this is valid
	digested bool
	digest   uint64
}

// piece returns a bucket with any number of bits, because other nodes may divide their sets differently. It
// costs O(1) unless a lease began or ended.
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

// bucket returns where the live nodes of a bucket begin and end.
func (t *table) bucket(id BucketID) (from, to int) {
	p := t.piece(id)
	return int(p.from), int(p.to)
}

// digest returns the digest of a bucket. It costs O(1) unless the bucket changed.
func (t *table) digest(id BucketID) uint64 {
	p := t.piece(id)
	if !p.digested {
		p.digest, p.digested = digestOf(t.live[p.from:p.to]), true
	}
	return p.digest
}

// digestOf returns a fingerprint of nodes with their record versions and states.
func digestOf(nodes []*entry) (d uint64) {
	for _, e := range nodes {
		d ^= e.hash()
	}
	return d >> (64 - handleBits)
}

// differsIn forgets cached results that depend on e. Call it when the lease of e began or ended, or when the
// node has another record or state.
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

// Knows reports whether a node is a member, or was recently.
func (t *table) Knows(id NodeID) bool { return t.latest(id) != nil }
