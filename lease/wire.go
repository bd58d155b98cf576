package lease

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
)

// Versions and limits of messages.
const (
	// WireVersion is the version of the messages that this release writes. It is the first field of a
	// message, and also covers the format of Message.Extra. WireVersion only changes if a receiver that skips
	// unknown fields would misunderstand the new messages; see docs/dev/decisions. A node cannot join nodes
	// with which it shares no version.
	WireVersion    = 1
	MinWireVersion = 1 // the earliest version that this release reads

	// MaxMessageBytes and the limits below ensure that a decoder allocates at most a small multiple of the
	// message's size.
	MaxMessageBytes = 6 << 20
	MaxExtraBytes   = 2 << 20
	MaxNodes        = 16384 // nodes in a set; records or rows in a message
	maxReported     = 2 * MaxNodes * maxReporters
	MaxCordons      = 64 // cordons in a set or a message
	MaxCordonTime   = 24 * time.Hour
	MaxReasonBytes  = 128 // of a cordon
	handleBytes     = wire.HandleSize
	maxRestBytes    = 64 // unknown fields of one row, record or cordon
	maxLoad         = 1<<63 - 2
	maxIncarnation  = 1 << 62 // nanoseconds: the year 2116
	maxWall         = 1 << 61 // maximum distance of a wall clock from 1970, in milliseconds
)

// Errors of [Decode] and [Set.Cordon].
var (
	ErrVersion   = errors.New("lease: message of an unknown wire version")
	ErrMalformed = errors.New("lease: malformed message")
	ErrCordons   = errors.New("lease: too many cordons: wait until one ends")
)

// A message is an array of fields, and so is each of its parts. docs/dev/design/wire.md describes the fields.
// The fields that every message needs come first, so that messages are short while nothing changes.
//
// A receiver skips unknown fields. If a row, record or cordon ends with unknown fields, the receiver keeps
// and relays them, so that nodes of a later release can exchange them via this node.
const headFields = 6 // number of fields that every message has

const (
	flagProvisional = 1 << iota
	flagPullCordons
)

// Encode returns the wire form of m. A row takes 11 to 52 bytes without unknown fields, typically 16 to 21.
// An age takes five bits.
func Encode(m *Message) []byte {
	size := 64 + 24*len(m.Heartbeats) + 160*len(m.Records) + 64*len(m.Ages) + len(m.Extra)
	return wire.Append(make([]byte, 0, size), func(w *wire.Writer) { writeMessage(w, m) })
}

func writeMessage(w *wire.Writer, m *Message) {
	table, rows := tableOf(m), len(m.Heartbeats) > 0
	f := w.Fields(headFields)
	w.Uint(WireVersion)
	w.Uint(uint64(m.Settings))
	w.Handle(uint64(m.From))
	w.Uint(uint64(m.Stamp))
	w.Uint(m.flags())
	w.Int(min(max(m.SentAt.UnixMilli(), -maxWall), maxWall) - int64(m.Stamp))
	f.Optional(rows, func() { w.Uint(uint64(table)) })
	f.Optional(rows, func() {
		w.Bin(handleBytes * len(m.Heartbeats))
		for i := range m.Heartbeats {
			w.RawHandle(uint64(m.Heartbeats[i].Handle))
		}
	})
	f.Optional(rows, func() { writeList(w, m.Heartbeats, func(b *Heartbeat) { writeRow(w, b, m.Stamp, table) }) })
	f.Optional(len(m.Ages) > 0, func() { writeList(w, m.Ages, func(b *Bucket) { writeBucket(w, b) }) })
	f.Optional(len(m.Cluster) > 0, func() { writeHandles(w, m.Cluster...) })
	f.Optional(len(m.Extra) > 0, func() { w.Bytes(m.Extra) })
	f.Optional(m.Missed != 0, func() { w.Uint(uint64(m.Missed)) })
	f.Optional(len(m.Records) > 0, func() { writeList(w, m.Records, func(r **Record) { writeRecord(w, *r) }) })
	f.Optional(len(m.FailureReports) > 0, func() {
		writeList(w, m.FailureReports, func(a *FailureReport) { writeFailureReport(w, a, m.Stamp) })
	})
	f.Optional(m.Cordoned != 0, func() { w.Uint(uint64(m.Cordoned)) })
	f.Optional(len(m.Cordons) > 0, func() { writeList(w, m.Cordons, func(c *Cordon) { writeCordon(w, c, m.Stamp) }) })
	f.Optional(len(m.PullRecords) > 0, func() { writeHandles(w, m.PullRecords...) })
	f.Optional(len(m.PullLeases) > 0, func() { writeHandles(w, m.PullLeases...) })
	f.Optional(len(m.PullBuckets) > 0, func() { writeList(w, m.PullBuckets, func(d *BucketDigest) { writeBucketDigest(w, d) }) })
	f.Optional(m.Challenge != 0, func() { w.Uint(m.Challenge) })
	f.Optional(m.Echo != 0, func() { w.Uint(m.Echo) })
	f.Optional(len(m.Handoff) > 0, func() { w.Bytes(m.Handoff) })
	f.End(nil)
}

func (m *Message) flags() (flags uint64) {
	if m.Provisional {
		flags |= flagProvisional
	}
	if m.PullCordons {
		flags |= flagPullCordons
	}
	return flags
}

// tableOf returns the table digest that most rows of m probably share. This is the digest in the first row, which is
// the sender's own row. Rows with this digest save five bytes.
func tableOf(m *Message) uint32 {
	if len(m.Heartbeats) == 0 {
		return 0
	}
	return m.Heartbeats[0].Table
}

func writeList[T any](w *wire.Writer, list []T, write func(element *T)) {
	w.Array(len(list))
	for i := range list {
		write(&list[i])
	}
}

func writeHandles(w *wire.Writer, handles ...Handle) {
	w.Bin(handleBytes * len(handles))
	for _, h := range handles {
		w.RawHandle(uint64(h))
	}
}

// number encodes a bucket's id as an integer whose binary digits are a 1 followed by the bits of the index.
func (id BucketID) number() uint64 { return 1<<id.Bits | uint64(id.Index) }

func writeBucket(w *wire.Writer, b *Bucket) {
	w.Array(3)
	w.Uint(b.number())
	w.Uint(uint64(b.Nodes))
	w.Bin(handleBytes + len(b.ages) + len(b.same))
	w.RawHandle(b.Digest)
	w.Raw(b.ages)
	w.Raw(b.same)
}

// bucketBytes is an upper bound for the encoded size of a bucket of n nodes.
func bucketBytes(n int) int {
	number := 1
	if n >= 1<<7 {
		number = 3
	}
	return 1 + 3 + number + wire.BinSize(handleBytes+(n+1)/2+(n+7)/8)
}

func writeBucketDigest(w *wire.Writer, d *BucketDigest) {
	w.Array(2)
	w.Uint(d.number())
	w.Bin(4 * len(d.Hashes))
	for _, h := range d.Hashes {
		w.Raw([]byte{byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)})
	}
}

// maxAge limits the ages of rows on the wire. It exceeds the age of any live lease. The encoder also limits
// ages, so that a single strange row does not make a message unreadable.
const maxAge = Stamp(24 * time.Hour / time.Millisecond)

// maxRowFields is an upper bound for the encoded size of a row without its unknown fields.
const maxRowFields = handleBytes + 3 + 1 + 5 + 5 + 3*wire.MaxInteger + 5

// writeRow writes a row without its handle, for a message with the given stamp and table digest. The fields
// are the state, the version of the record, the age of the latest heartbeat and the load. Three optional
// fields follow: the clock, how much earlier the node sent this heartbeat, and the table digest if it differs
// from the message's.
func writeRow(w *wire.Writer, b *Heartbeat, at Stamp, table uint32) {
	renewed := min(b.renewed(), at)
	earlier, clock := max(0, renewed-b.At), inRange(b.Clock).Milliseconds()
	f := w.Fields(4)
	w.Uint(uint64(min(max(b.State, Settling), Left)))
	w.Uint(uint64(b.Version))
	w.Uint(uint64(min(at-renewed, maxAge)))
	w.Int(min(max(NoLoad, b.Load), maxLoad))
	f.Optional(clock != 0, func() { w.Int(clock) })
	f.Optional(earlier != 0, func() { w.Uint(uint64(earlier)) })
	f.Optional(b.Table != table, func() { w.Uint(uint64(b.Table)) })
	f.End(b.rest)
}

// rowBytes returns the encoded size of a row with its handle.
func rowBytes(b *Heartbeat, at Stamp, table uint32) int {
	return handleBytes + wire.Size(func(w *wire.Writer) { writeRow(w, b, at, table) })
}

// maxFailureReportBytes is an upper bound for the encoded size of a failure report.
const maxFailureReportBytes = 1 + 2 + 2*handleBytes + 5 + 1

// writeFailureReport writes a failure report for a message with the given stamp. The fields are the subject,
// the watcher, the age and the evidence.
func writeFailureReport(w *wire.Writer, a *FailureReport, at Stamp) {
	w.Array(3)
	writeHandles(w, a.Subject, a.Watcher)
	w.Uint(uint64(min(max(0, at-a.At), maxAge)))
	w.Uint(uint64(min(a.Evidence, math.MaxInt8)))
}

// maxCordonBytes is an upper bound for the encoded size of a cordon.
const maxCordonBytes = 3 + 2 + MaxIDBytes + 3*wire.MaxInteger + 2 + MaxReasonBytes + maxRestBytes

// oldestCordon limits the ages of cordons on the wire. It is generous because a set removes an ended cordon
// with some delay.
const oldestCordon = 2 * maxAge

// writeCordon writes a cordon for a message with the given stamp. The fields are the id, the age of the
// cordon, its duration, how long sets remember it after its end, and the reason.
func writeCordon(w *wire.Writer, c *Cordon, at Stamp) {
	f := w.Fields(5)
	w.Text(string(c.ID))
	w.Uint(uint64(min(max(0, at-c.At), oldestCordon)))
	w.Uint(uint64(c.Until - c.At))
	w.Uint(uint64(c.Keep - c.Until))
	w.Text(c.Reason)
	f.End([]byte(c.rest))
}

func writeRecord(w *wire.Writer, r *Record) {
	f := w.Fields(10)
	w.Text(string(r.ID))
	w.Uint(r.Incarnation)
	w.Uint(uint64(r.Version))
	w.Text(r.Addr)
	w.Text(r.APIAddr)
	w.Text(r.Zone)
	w.Uint(uint64(r.Weight))
	w.Int(r.Capacity)
	w.Uint(uint64(r.MinWire))
	w.Uint(uint64(r.MaxWire))
	f.Optional(r.RoostVersion != "", func() { w.Text(r.RoostVersion) })
	f.Optional(r.HTTP != 0, func() { w.Uint(uint64(r.HTTP)) })
	f.Optional(r.Keys != "", func() { w.Bytes([]byte(r.Keys)) })
	f.Optional(r.Handoff, func() { w.Bool(true) })
	f.Optional(len(r.Labels) > 0, func() {
		w.Map(len(r.Labels))
		for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
			w.Text(k)
			w.Text(r.Labels[k])
		}
	})
	f.Optional(r.AppVersion != "", func() { w.Text(r.AppVersion) })
	f.Optional(r.Meta != "", func() { w.Bytes([]byte(r.Meta)) })
	f.Optional(r.RecentReturns != 0, func() { w.Uint(uint64(r.RecentReturns)) })
	f.Optional(r.FlappingUntil != 0, func() { w.Uint(uint64(r.FlappingUntil)) })
	f.Optional(r.Drains != 0, func() { w.Uint(uint64(r.Drains)) })
	f.Optional(r.Unhealthy, func() { w.Bool(true) })
	f.End(r.rest)
}

// recordBytes returns the encoded size of r.
func recordBytes(r *Record) int { return wire.Size(func(w *wire.Writer) { writeRecord(w, r) }) }
