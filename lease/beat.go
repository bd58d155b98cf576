package lease

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Handle stands for one incarnation of one node on the wire: 48 bits of the
// xxhash64 of both. Among a thousand nodes two share a handle with a
// probability of 2·10⁻⁹.
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

// NoLoad is the load of a node that has not reported any: nobody knows what it
// carries, which is not the same as nothing.
const NoLoad int64 = -1

// Beat is one renewal of one node's lease: the row of which digests are made.
// Beats of one handle are ordered by Seq. An honest node gives a Seq one State;
// if two come with the same Seq, the greater one counts, on every node.
type Beat struct {
	Handle  Handle
	Seq     uint32
	State   State         // what the node does; with Left, the beat is its farewell
	Version uint32        // of the node's record at that time
	Age     time.Duration // how old the beat was when the message's sender sent it; whole µs on the wire, rounded up
	Clock   time.Duration // the node's wall clock minus the sender's; whole ms on the wire
	Load    int64         // units, or NoLoad
	Table   uint32        // digest of the node's placement table
}

// Message is what nodes send each other. Its receivers treat it as read-only.
type Message struct {
	Settings uint32    // hash of the sender's cluster-wide settings; other hashes are refused
	From     Handle    // the sender, to whom Wants are answered and of whom they are asked
	SentAt   time.Time // the sender's wall clock, ms
	Beats    []Beat
	Records  []*Record
	Wants    []Handle // whose records the sender asks for
	Extra    []byte   // what the layer above sends along; at most MaxExtraBytes
}
