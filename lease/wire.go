package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// WireVersion is the first byte of every message. Nodes with different versions cannot
// read each other's messages, so the version is among the settings that are compared
// at a join. It also covers the format of Message.Extra.
const WireVersion = 2

// Bounds of a message. They limit the memory that a decoder allocates to a small
// multiple of the message's size.
const (
	MaxMessageBytes = 6 << 20
	MaxExtraBytes   = 2 << 20
	MaxNodes        = 4096 // in a set, and records in a message
	handleBytes     = handleBits / 8
	minBeatBytes    = handleBytes + 5
	minRecordBytes  = 10 // nine fields and their count
	maxLoad         = math.MaxInt64 - 1
)

// Errors of [Decode].
var (
	ErrVersion   = errors.New("lease: message of an unknown wire version")
	ErrMalformed = errors.New("lease: malformed message")
)

// Encode returns the wire form of m: a version byte, then a msgpack array of
// settings, sender, time, table digest, beats (bin), records, wants (bin) and, if not
// empty, Extra (bin). A beat takes 11 to 42 bytes, typically 16.
func Encode(m *Message) []byte {
	var buf bytes.Buffer
	buf.WriteByte(WireVersion)
	e := msgpack.NewEncoder(&buf)
	table := tableOf(m)
	// Writes to a bytes.Buffer do not fail.
	fields := 7
	if len(m.Extra) > 0 {
		fields++
	}
	_ = e.EncodeArrayLen(fields)
	_ = e.EncodeUint(uint64(m.Settings))
	_ = e.EncodeUint(uint64(m.From))
	_ = e.EncodeInt(m.SentAt.UnixMilli())
	_ = e.EncodeUint(uint64(table))
	// msgpack writes a nil slice as nil, not as bin: start from an empty slice.
	_ = e.EncodeBytes(appendBeats(make([]byte, 0, 20*len(m.Beats)), m.Beats, table))
	_ = e.EncodeArrayLen(len(m.Records))
	for _, r := range m.Records {
		encodeRecord(e, r)
	}
	wants := make([]byte, 0, handleBytes*len(m.Wants))
	for _, h := range m.Wants {
		wants = appendHandle(wants, h)
	}
	_ = e.EncodeBytes(wants)
	if len(m.Extra) > 0 {
		_ = e.EncodeBytes(m.Extra)
	}
	return buf.Bytes()
}

// tableOf returns the table digest that most rows of m probably share: that of the
// first row, the sender's own. Rows with the same digest save four bytes.
func tableOf(m *Message) uint32 {
	if len(m.Beats) == 0 {
		return 0
	}
	return m.Beats[0].Table
}

func appendHandle(b []byte, h Handle) []byte {
	return append(b, byte(h>>40), byte(h>>32), byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

func handleAt(b []byte) Handle {
	return Handle(b[0])<<40 | Handle(b[1])<<32 | Handle(b[2])<<24 | Handle(b[3])<<16 | Handle(b[4])<<8 | Handle(b[5])
}

// maxAge bounds the ages on the wire; every lease is shorter. The encoder bounds ages,
// too: one odd row must not make a message unreadable.
const maxAge = 24 * time.Hour

// ageMicros rounds up, so that relaying a beat never makes it younger.
func ageMicros(d time.Duration) uint64 {
	d = min(max(0, d), maxAge)
	return uint64(d+time.Microsecond-1) / uint64(time.Microsecond)
}

func appendBeats(b []byte, beats []Beat, table uint32) []byte {
	for i := range beats {
		b = appendBeat(b, &beats[i], table)
	}
	return b
}

func appendBeat(b []byte, beat *Beat, table uint32) []byte {
	b = appendHandle(b, beat.Handle)
	// The lowest three bits hold the state (two bits) and whether a table digest
	// follows (the last bit).
	state := min(max(beat.State, Settling), Left)
	head := uint64(beat.Seq)<<3 | uint64(state-Settling)<<1
	if beat.Table != table {
		head |= 1
	}
	b = binary.AppendUvarint(b, head)
	b = binary.AppendUvarint(b, uint64(beat.Version))
	b = binary.AppendUvarint(b, ageMicros(beat.Age))
	b = binary.AppendVarint(b, inRange(beat.Clock).Milliseconds())
	b = binary.AppendUvarint(b, uint64(min(max(NoLoad, beat.Load), maxLoad)+1)) // 0 for NoLoad
	if beat.Table != table {
		b = binary.BigEndian.AppendUint32(b, beat.Table)
	}
	return b
}

func encodeRecord(e *msgpack.Encoder, r *Record) {
	_ = e.EncodeArrayLen(9)
	_ = e.EncodeString(string(r.ID))
	_ = e.EncodeUint(r.Incarnation)
	_ = e.EncodeUint(uint64(r.Version))
	_ = e.EncodeString(r.Addr)
	_ = e.EncodeString(r.APIAddr)
	_ = e.EncodeString(r.Zone)
	_ = e.EncodeUint(uint64(r.Weight))
	_ = e.EncodeInt(r.Capacity)
	_ = e.EncodeMapLen(len(r.Labels))
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		_ = e.EncodeString(k)
		_ = e.EncodeString(r.Labels[k])
	}
}

// recordBytes returns the encoded size of r.
func recordBytes(r *Record) int {
	var buf bytes.Buffer
	encodeRecord(msgpack.NewEncoder(&buf), r)
	return buf.Len()
}
