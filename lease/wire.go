package lease

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"
)

// The versions and the size of messages.
const (
	// WireVersion is the version of the messages that this program writes. The version is the
	// first byte of a message. It changes only if a program that skips what it does not know
	// would misunderstand a message; see docs/decisions. Two nodes whose ranges have no
	// version in common refuse each other at a join. The version also covers the format of
	// Message.Extra.
	WireVersion    = 1
	MinWireVersion = 1 // the earliest that this program reads

	// MaxMessageBytes and the bounds below limit the memory that a decoder allocates to a
	// small multiple of the message's size.
	MaxMessageBytes = 6 << 20
	MaxExtraBytes   = 2 << 20
	MaxNodes        = 16384 // in a set, and records and rows in a message
	maxReported     = 2 * MaxNodes * maxReporters
	MaxCordons      = 64 // in a set, and in a message
	MaxCordonTime   = 24 * time.Hour
	MaxReasonBytes  = 128 // of a cordon
	handleBytes     = handleBits / 8
	minRowBytes     = 1 + handleBytes + 6
	maxRestBytes    = 64 // unknown fields of one row, record or cordon
	maxLoad         = 1<<63 - 2
	maxIncarnation  = 1 << 62 // nanoseconds: the year 2116
)

// Errors of [Decode] and [Set.Cordon].
var (
	ErrVersion   = errors.New("lease: message of an unknown wire version")
	ErrMalformed = errors.New("lease: malformed message")
	ErrCordons   = errors.New("lease: too many cordons: wait until one ends")
)

// A message is the version, then sections in ascending order of their kinds: a kind, a
// length and a body. A receiver skips sections of unknown kinds. The head, each row and each record also begin with
// their length, so that fields can be added at their ends; a receiver keeps the unknown
// fields of rows and records, and passes them on. All integers are varints, unless
// stated. A section that would be empty is left out.
const (
	sectionHead           = 1 // settings and sender (fixed), stamp, flags, wall clock
	sectionRows           = 2 // the table digest that most rows share (fixed), then rows
	sectionRecords        = 3
	sectionAges           = 4 // bits, then buckets
	sectionPullRecords    = 5 // handles (fixed)
	sectionPullLeases     = 6 // handles (fixed)
	sectionPullBuckets    = 7 // bits, index and hashes (fixed) of each
	sectionChallenge      = 8 // fixed
	sectionEcho           = 9 // fixed
	sectionExtra          = 10
	sectionFailureReports = 11
	sectionCordons        = 12 // flags, digest (fixed), then cordons
	sectionHandoff        = 13
	sectionMissed         = 14 // a stamp (fixed)
	sectionCluster        = 15 // handles (fixed)
)

const flagProvisional = 1

// Encode returns the wire form of m. A row takes 15 to 50 bytes, typically 17; an age
// five bits.
func Encode(m *Message) []byte {
	w := writer{b: make([]byte, 1, 64+20*len(m.Heartbeats)+128*len(m.Records)+len(m.Extra))}
	w.b[0] = WireVersion
	w.section(sectionHead, func() {
		w.fixed32(m.Settings)
		w.handle(m.From)
		w.uvarint(uint64(m.Stamp))
		var flags uint64
		if m.Provisional {
			flags |= flagProvisional
		}
		w.uvarint(flags)
		w.varint(m.SentAt.UnixMilli())
	})
	table := tableOf(m)
	w.list(sectionRows, len(m.Heartbeats), func() {
		w.fixed32(table)
		for i := range m.Heartbeats {
			w.b = appendRow(w.b, &m.Heartbeats[i], m.Stamp, table)
		}
	})
	w.list(sectionRecords, len(m.Records), func() {
		for _, r := range m.Records {
			w.b = appendRecord(w.b, r)
		}
	})
	w.list(sectionAges, len(m.Ages), func() {
		for i := range m.Ages {
			w.bucket(&m.Ages[i])
		}
	})
	w.list(sectionPullRecords, len(m.PullRecords), func() { w.handles(m.PullRecords) })
	w.list(sectionPullLeases, len(m.PullLeases), func() { w.handles(m.PullLeases) })
	w.list(sectionPullBuckets, len(m.PullBuckets), func() {
		for _, h := range m.PullBuckets {
			w.uvarint(uint64(h.Bits))
			w.uvarint(uint64(h.Index))
			w.uvarint(uint64(len(h.Hashes)))
			for _, hash := range h.Hashes {
				w.fixed32(hash)
			}
		}
	})
	w.number(sectionChallenge, m.Challenge)
	w.number(sectionEcho, m.Echo)
	w.list(sectionExtra, len(m.Extra), func() { w.b = append(w.b, m.Extra...) })
	w.list(sectionFailureReports, len(m.FailureReports), func() {
		for _, a := range m.FailureReports {
			w.b = appendFailureReport(w.b, a, m.Stamp)
		}
	})
	w.cordons(m)
	w.list(sectionHandoff, len(m.Handoff), func() { w.b = append(w.b, m.Handoff...) })
	w.number(sectionMissed, uint64(m.Missed))
	w.list(sectionCluster, len(m.Cluster), func() { w.handles(m.Cluster) })
	return w.b
}

// tableOf returns the table digest that most rows of m probably share: that of the
// first row, the sender's own. Rows with the same digest save four bytes.
func tableOf(m *Message) uint32 {
	if len(m.Heartbeats) == 0 {
		return 0
	}
	return m.Heartbeats[0].Table
}

// writer appends to a message.
type writer struct{ b []byte }

func (w *writer) uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) varint(v int64)   { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) fixed32(v uint32) { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) handle(h Handle)  { w.b = appendHandle(w.b, h) }
func (w *writer) flag(set bool) {
	var b byte
	if set {
		b = 1
	}
	w.b = append(w.b, b)
}
func (w *writer) text(s string) { w.uvarint(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) handles(h []Handle) {
	for _, h := range h {
		w.handle(h)
	}
}

// section appends what body appends, behind its kind and length.
func (w *writer) section(kind uint64, body func()) {
	w.uvarint(kind)
	start := len(w.b)
	body()
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(w.b)-start))
	w.b = slices.Insert(w.b, start, length[:n]...)
}

func (w *writer) list(kind uint64, elements int, body func()) {
	if elements > 0 {
		w.section(kind, body)
	}
}

func (w *writer) number(kind, v uint64) {
	if v != 0 {
		w.section(kind, func() { w.b = binary.BigEndian.AppendUint64(w.b, v) })
	}
}

func (w *writer) bucket(b *Bucket) {
	w.uvarint(uint64(b.Bits))
	w.uvarint(uint64(b.Index))
	w.uvarint(uint64(b.Nodes))
	w.handle(Handle(b.Digest))
	w.b = append(append(w.b, b.ages...), b.same...)
}

// bucketBytes is an upper bound for the encoded size of a bucket of n nodes.
func bucketBytes(n int) int { return 1 + 2 + 3 + handleBytes + (n+1)/2 + (n+7)/8 }

func appendHandle(b []byte, h Handle) []byte {
	return append(b, byte(h>>40), byte(h>>32), byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

// maxAge bounds the ages of rows on the wire; every lease is shorter. The encoder bounds
// ages, too: one odd row must not make a message unreadable.
const maxAge = Stamp(24 * time.Hour / time.Millisecond)

// appendRow appends a row of a message with the given stamp and table: its length in one
// byte, the handle, a number for the state (two bits) and whether a table digest follows
// (the last bit), the version of the record, the age of the latest heartbeat, how much
// earlier this heartbeat was sent, clock, load plus 1, and the table digest.
func appendRow(b []byte, heartbeat *Heartbeat, at Stamp, table uint32) []byte {
	start := len(b)
	w := writer{b: appendHandle(append(b, 0), heartbeat.Handle)}
	head := uint64(min(max(heartbeat.State, Settling), Left)-Settling) << 1
	if heartbeat.Table != table {
		head |= 1
	}
	w.uvarint(head)
	w.uvarint(uint64(heartbeat.Version))
	renewed := min(heartbeat.renewed(), at)
	w.uvarint(uint64(min(at-renewed, maxAge)))
	w.uvarint(uint64(max(0, renewed-heartbeat.At)))
	w.varint(inRange(heartbeat.Clock).Milliseconds())
	w.uvarint(uint64(min(max(NoLoad, heartbeat.Load), maxLoad) + 1))
	if heartbeat.Table != table {
		w.fixed32(heartbeat.Table)
	}
	w.b = append(w.b, heartbeat.rest...)
	w.b[start] = byte(len(w.b) - start - 1)
	return w.b
}

// maxFailureReportBytes is an upper bound for the encoded size of a failure report.
const maxFailureReportBytes = 1 + 2*handleBytes + 4 + 1

// appendFailureReport appends a failure report of a message with the given stamp: its length in
// one byte, subject, watcher, the time since, and the evidence.
func appendFailureReport(b []byte, a FailureReport, at Stamp) []byte {
	start := len(b)
	w := writer{b: appendHandle(appendHandle(append(b, 0), a.Subject), a.Watcher)}
	w.uvarint(uint64(min(max(0, at-a.At), maxAge)))
	w.uvarint(uint64(min(a.Evidence, math.MaxInt8)))
	w.b[start] = byte(len(w.b) - start - 1)
	return w.b
}

// appendRecord appends a record behind its length.
func appendRecord(b []byte, r *Record) []byte {
	var w writer
	w.text(string(r.ID))
	w.uvarint(r.Incarnation)
	w.uvarint(uint64(r.Version))
	w.text(r.Addr)
	w.text(r.APIAddr)
	w.text(r.Zone)
	w.uvarint(uint64(r.Weight))
	w.varint(r.Capacity)
	w.uvarint(uint64(len(r.Labels)))
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		w.text(k)
		w.text(r.Labels[k])
	}
	w.b = append(w.b, r.MinWire, r.MaxWire)
	w.flag(r.Handoff)
	w.uvarint(uint64(r.RecentReturns))
	w.uvarint(uint64(r.FlappingUntil))
	w.text(r.Keys)
	w.text(r.RoostVersion)
	w.text(r.AppVersion)
	w.uvarint(uint64(r.HTTP))
	w.uvarint(uint64(r.Drains))
	w.text(r.Meta)
	w.b = append(w.b, r.rest...)
	return append(binary.AppendUvarint(b, uint64(len(w.b))), w.b...)
}

// recordBytes returns the encoded size of r.
func recordBytes(r *Record) int { return len(appendRecord(nil, r)) }
