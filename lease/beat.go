package lease

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Handle identifies an Incarnation on the wire by the highest 48 bits of the xxhash64
// of both fields. Two of a thousand nodes share a handle with a probability of 2·10⁻⁹.
type Handle uint64

const handleBits = 48

// HandleOf returns the handle of one incarnation of a node.
func HandleOf(id NodeID, incarnation uint64) Handle {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(string(id))
	_, _ = d.Write(binary.BigEndian.AppendUint64(nil, incarnation))
	return Handle(d.Sum64() >> (64 - handleBits))
}

// NoLoad is the load of a node that has not reported any: its load is unknown, not 0.
const NoLoad int64 = -1

// Beat is one renewal of one node's lease, and one row of a digest. Beats of one
// handle are ordered by Seq. A correct node sends one State per Seq; if two States
// arrive with the same Seq, every node keeps the greater one.
type Beat struct {
	Handle  Handle
	Seq     uint32
	State   State         // of the node; Left makes the beat a farewell
	Version uint32        // of the node's record when the beat was sent
	Age     time.Duration // of the beat when the message was sent; whole µs on the wire, rounded up
	Clock   time.Duration // the node's wall clock minus the sender's; whole ms on the wire
	Load    int64         // units, or NoLoad
	Table   uint32        // digest of the node's placement table
}

// Message is what nodes send each other. Receivers must not modify it.
type Message struct {
	Settings uint32    // hash of the sender's cluster-wide settings; messages with another hash are rejected
	From     Handle    // the sender, which answers Wants and receives the answers to its own
	SentAt   time.Time // the sender's wall clock, ms
	Beats    []Beat
	Records  []*Record
	Wants    []Handle // the sender requests the records of these handles
	Extra    []byte   // payload of the layer above; at most MaxExtraBytes
}
