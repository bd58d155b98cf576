package lease

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Handle identifies an Incarnation on the wire. A Handle is the highest 48 bits of the xxhash64 of the
// incarnation's node and number. The probability that two of a thousand nodes share a handle is 2·10⁻⁹.
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

// Heartbeat renews a node's lease. It is a row of a message. Heartbeats of the same handle are ordered by At.
// If two heartbeats with the same At have different States, which no correct node sends, every receiver keeps
// the greater State.
type Heartbeat struct {
	Handle  Handle
	At      Stamp         // when the node sent this heartbeat
	Renewed Stamp         // when the node sent its latest heartbeat, if the relaying node only knows the age of that heartbeat; at least At
	State   State         // state of the node; Left makes the heartbeat a leave message
	Version uint32        // version of the node's record when the node sent the heartbeat
	Clock   time.Duration // the node's wall clock minus the sender's; whole ms on the wire
	Load    int64         // units, or NoLoad
	Table   uint32        // digest of the node's placement table

	rest []byte // fields of a later release, which this node relays
}

func (b *Heartbeat) renewed() Stamp { return max(b.At, b.Renewed) }

// BucketID identifies the handles whose highest Bits bits are Index.
type BucketID struct {
	Bits  uint8
	Index uint32
}

func (id BucketID) has(h Handle) bool { return uint32(h>>(handleBits-id.Bits)) == id.Index }

// Bucket contains the ages of the leases of the live nodes in a bucket, in the order of their handles. A
// receiver ignores the ages if its own live nodes in the bucket differ.
type Bucket struct {
	BucketID
	Nodes  int    // number of live nodes
	Digest uint64 // 48-bit hash of handles, record versions and states
	ages   []byte // half a byte per node, in units of TTL/16 before the message's Stamp
	same   []byte // one bit per node: 1 = the node's table digest equals the sender's
}

// BucketDigest describes a node's own copy of a bucket. For each live node, it contains a hash of the handle,
// record version and state.
type BucketDigest struct {
	BucketID
	Hashes []uint32
}

// Message is a gossip message. Receivers must not modify it.
type Message struct {
	Settings       uint32    // hash of the sender's cluster-wide settings; receivers reject messages with a different hash
	Cluster        ClusterID // cluster of the sender
	From           Handle    // the sender, to which receivers send pulls and answers
	Stamp          Stamp     // cluster time at the sender
	Provisional    bool      // the sender has not learned cluster time yet
	Missed         Stamp     // when any node last missed a voter, see [Set.SetMissing]; 0 = never
	SentAt         time.Time // the sender's wall clock, ms
	Heartbeats     []Heartbeat
	Records        []*Record
	Ages           []Bucket
	FailureReports []FailureReport
	PullRecords    []Handle       // the sender requests the records of these handles
	PullLeases     []Handle       // the sender requests later heartbeats of these handles, whose leases are about to expire
	PullBuckets    []BucketDigest // the sender requests what it lacks in these buckets
	Challenge      uint64         // the sender requests a message with this Echo; 0 = none
	Echo           uint64         // the Challenge that this message answers; 0 = none
	Cordons        []Cordon
	Cordoned       uint32 // digest of all cordons that the sender knows; 0 = none
	PullCordons    bool   // the sender requests the cordons that it lacks
	Extra          []byte // payload of the layer above; at most MaxExtraBytes
	Handoff        []byte // payload of the handoff protocol, opaque to this package
}
