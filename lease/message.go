package lease

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Handle identifies an Incarnation on the wire. It is the highest 48 bits of the xxhash64 of both fields. The
// probability that two of a thousand nodes share a handle is 2·10⁻⁹.
type Handle uint64

const handleBits = 48

// Handle returns the handle of an incarnation. It does not allocate.
func (i Incarnation) Handle() Handle {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(string(i.Node))
	_, _ = d.Write(binary.BigEndian.AppendUint64(nil, i.Number))
	return Handle(d.Sum64() >> (64 - handleBits))
}

// Handle returns the handle of the record's incarnation. It does not allocate.
func (r *Record) Handle() Handle { return Incarnation{r.ID, r.Incarnation}.Handle() }

// Heartbeat is a renewal of a node's lease, and a row of a message. Heartbeats of the same handle are ordered
// by At. A correct node sends one State per heartbeat. If two States arrive with the same At, every node
// keeps the greater one.
type Heartbeat struct {
	Handle  Handle
	At      Stamp         // when the node sent this heartbeat
	Renewed Stamp         // when it sent its latest heartbeat, if the relaying node only knows its age; at least At
	State   State         // of the node; Left makes the heartbeat a leave message
	Version uint32        // of the node's record when the heartbeat was sent
	Clock   time.Duration // the node's wall clock minus the sender's; whole ms on the wire
	Load    int64         // units, or NoLoad
	Table   uint32        // digest of the node's placement table

	rest []byte // fields of a later release, passed on
}

func (b *Heartbeat) renewed() Stamp { return max(b.At, b.Renewed) }

// BucketID names a part of all handles: those whose highest Bits bits are Index.
type BucketID struct {
	Bits  uint8
	Index uint32
}

func (id BucketID) has(h Handle) bool { return uint32(h>>(handleBits-id.Bits)) == id.Index }

// Bucket has the ages of the leases of the live nodes in a part of all handles, in the order of the handles.
// A node whose live set differs in this part ignores it.
type Bucket struct {
	BucketID
	Nodes  int    // number of live nodes
	Digest uint64 // 48 bits, over handles, record versions and states
	ages   []byte // half a byte per node, in units of TTL/16 before the message's Stamp
	same   []byte // one bit per node: its table is the same as the sender's
}

// BucketDigest is what a node holds of a bucket: for each live node, a hash of its handle, record version and
// state.
type BucketDigest struct {
	BucketID
	Hashes []uint32
}

// Message is a message between nodes. Receivers must not modify it.
type Message struct {
	Settings       uint32    // hash of the sender's cluster-wide settings; messages with another hash are rejected
	Cluster        ClusterID // of the sender
	From           Handle    // the sender, which answers pulls and receives the answers to its own pulls
	Stamp          Stamp     // cluster time at the sender
	Provisional    bool      // the sender has not learned cluster time yet
	Missed         Stamp     // when a node last missed a voter, see [Set.SetMissing]; 0 = never
	SentAt         time.Time // the sender's wall clock, ms
	Heartbeats     []Heartbeat
	Records        []*Record
	Ages           []Bucket
	FailureReports []FailureReport
	PullRecords    []Handle       // the sender requests the records of these handles
	PullLeases     []Handle       // the sender requests later heartbeats of these handles, whose leases are about to expire
	PullBuckets    []BucketDigest // the sender requests what it does not hold of these buckets
	Challenge      uint64         // the sender requests a message with this Echo; 0 = none
	Echo           uint64         // the Challenge that this message answers; 0 = none
	Cordons        []Cordon
	Cordoned       uint32 // digest of all cordons that the sender knows; 0 = none
	PullCordons    bool   // the sender requests the cordons that it lacks
	Extra          []byte // payload of the layer above; at most MaxExtraBytes
	Handoff        []byte // a message of a handoff, opaque to this package
}
