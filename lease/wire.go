package lease

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
)

// The versions and the size of messages.
const (
	// WireVersion is the version of the messages that this program writes. The version is the
	// first field of a message. It changes only if a program that skips what it does not know
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
	handleBytes     = wire.HandleSize
	maxRestBytes    = 64 // unknown fields of one row, record or cordon
	maxLoad         = 1<<63 - 2
	maxIncarnation  = 1 << 62 // nanoseconds: the year 2116
	maxWall         = 1 << 61 // milliseconds before or after 1970, of a wall clock
)

// Errors of [Decode] and [Set.Cordon].
var (
	ErrVersion   = errors.New("lease: message of an unknown wire version")
	ErrMalformed = errors.New("lease: malformed message")
	ErrCordons   = errors.New("lease: too many cordons: wait until one ends")
)

// A message is an array of these fields, described in docs/dev/design/wire.md. Fields at the end are left out if they are
// absent; before the last one, nil stands for an absent field. The fields of a message at rest come first, so that it is short.
//
// A receiver skips fields that it does not know. It keeps those at the ends of rows, records and cordons and passes them
// on, so nodes of a later release hear each other through it.
const (
	fieldVersion = iota
	fieldSettings
	fieldFrom
	fieldStamp
	fieldFlags
	fieldSentAt
	fieldTable // the digest that most rows share
	fieldHandles
	fieldRows
	fieldAges
	fieldCluster
	fieldExtra
	fieldMissed
	fieldRecords
	fieldFailureReports
	fieldCordoned
	fieldCordons
	fieldPullRecords
	fieldPullLeases
	fieldPullBuckets
	fieldChallenge
	fieldEcho
	fieldHandoff
	messageFields

	headFields = fieldSentAt + 1 // those that no message lacks
)

const (
	flagProvisional = 1 << iota
	flagPullCordons
)

// Encode returns the wire form of m. A row takes 13 to 50 bytes, typically 17; an age
// five bits.
func Encode(m *Message) []byte {
	size := 64 + 24*len(m.Heartbeats) + 160*len(m.Records) + 64*len(m.Ages) + len(m.Extra)
	return wire.Append(make([]byte, 0, size), func(w *wire.Writer) {
		present := m.present()
		n := lastOf(present[:])
		w.Array(n)
		for field := range n {
			if present[field] {
				m.write(w, field)
			} else {
				w.Nil()
			}
		}
	})
}

// present returns which fields m has.
func (m *Message) present() [messageFields]bool {
	rows := len(m.Heartbeats) > 0
	return [messageFields]bool{
		fieldVersion: true, fieldSettings: true, fieldFrom: true, fieldStamp: true, fieldFlags: true, fieldSentAt: true,
		fieldTable: rows, fieldHandles: rows, fieldRows: rows,
		fieldAges:           len(m.Ages) > 0,
		fieldCluster:        len(m.Cluster) > 0,
		fieldExtra:          len(m.Extra) > 0,
		fieldMissed:         m.Missed != 0,
		fieldRecords:        len(m.Records) > 0,
		fieldFailureReports: len(m.FailureReports) > 0,
		fieldCordoned:       m.Cordoned != 0,
		fieldCordons:        len(m.Cordons) > 0,
		fieldPullRecords:    len(m.PullRecords) > 0,
		fieldPullLeases:     len(m.PullLeases) > 0,
		fieldPullBuckets:    len(m.PullBuckets) > 0,
		fieldChallenge:      m.Challenge != 0,
		fieldEcho:           m.Echo != 0,
		fieldHandoff:        len(m.Handoff) > 0,
	}
}

// lastOf returns how many of the fields are written: all up to the last that is there.
func lastOf(present []bool) (n int) {
	for n = len(present); n > 0 && !present[n-1]; {
		n--
	}
	return n
}

func (m *Message) write(w *wire.Writer, field int) { //nolint:cyclop,funlen // a case for each field
	switch field {
	case fieldVersion:
		w.Uint(WireVersion)
	case fieldSettings:
		w.Uint(uint64(m.Settings))
	case fieldFrom:
		w.Handle(uint64(m.From))
	case fieldStamp:
		w.Uint(uint64(m.Stamp))
	case fieldFlags:
		w.Uint(m.flags())
	case fieldSentAt:
		w.Int(min(max(m.SentAt.UnixMilli(), -maxWall), maxWall) - int64(m.Stamp))
	case fieldTable:
		w.Uint(uint64(tableOf(m)))
	case fieldHandles:
		w.Bin(handleBytes * len(m.Heartbeats))
		for i := range m.Heartbeats {
			w.RawHandle(uint64(m.Heartbeats[i].Handle))
		}
	case fieldRows:
		table := tableOf(m)
		w.Array(len(m.Heartbeats))
		for i := range m.Heartbeats {
			writeRow(w, &m.Heartbeats[i], m.Stamp, table)
		}
	case fieldAges:
		writeList(w, m.Ages, writeBucket)
	case fieldCluster:
		writeHandles(w, m.Cluster...)
	case fieldExtra:
		w.Bytes(m.Extra)
	case fieldMissed:
		w.Uint(uint64(m.Missed))
	case fieldRecords:
		w.Array(len(m.Records))
		for _, r := range m.Records {
			writeRecord(w, r)
		}
	case fieldFailureReports:
		writeList(w, m.FailureReports, func(w *wire.Writer, a *FailureReport) { writeFailureReport(w, a, m.Stamp) })
	case fieldCordoned:
		w.Uint(uint64(m.Cordoned))
	case fieldCordons:
		writeList(w, m.Cordons, func(w *wire.Writer, c *Cordon) { writeCordon(w, c, m.Stamp) })
	case fieldPullRecords:
		writeHandles(w, m.PullRecords...)
	case fieldPullLeases:
		writeHandles(w, m.PullLeases...)
	case fieldPullBuckets:
		writeList(w, m.PullBuckets, writeBucketDigest)
	case fieldChallenge:
		w.Uint(m.Challenge)
	case fieldEcho:
		w.Uint(m.Echo)
	case fieldHandoff:
		w.Bytes(m.Handoff)
	}
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

// tableOf returns the table digest that most rows of m probably share: that of the
// first row, the sender's own. Rows with the same digest save five bytes.
func tableOf(m *Message) uint32 {
	if len(m.Heartbeats) == 0 {
		return 0
	}
	return m.Heartbeats[0].Table
}

func writeList[T any](w *wire.Writer, list []T, write func(w *wire.Writer, element *T)) {
	w.Array(len(list))
	for i := range list {
		write(w, &list[i])
	}
}

func writeHandles(w *wire.Writer, handles ...Handle) {
	w.Bin(handleBytes * len(handles))
	for _, h := range handles {
		w.RawHandle(uint64(h))
	}
}

// number returns the bits and the index of a bucket as one integer: a one, and the bits of the index.
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

// maxAge bounds the ages of rows on the wire; every lease is shorter. The encoder bounds
// ages, too: one odd row must not make a message unreadable.
const maxAge = Stamp(24 * time.Hour / time.Millisecond)

const (
	rowFields    = 7
	leastInRow   = 4                                                   // fields that no row lacks
	maxRowFields = handleBytes + 3 + 1 + 5 + 5 + 3*wire.MaxInteger + 5 // bytes of a row without its rest
)

// writeRow writes a row of a message with the given stamp and table, but for its handle: state, version of the
// record, the age of the latest heartbeat, load, clock, how much earlier this heartbeat was sent, and the table digest if
// it is another one.
func writeRow(w *wire.Writer, b *Heartbeat, at Stamp, table uint32) {
	renewed := min(b.renewed(), at)
	earlier, clock := max(0, renewed-b.At), inRange(b.Clock).Milliseconds()
	n := leastInRow
	switch {
	case len(b.rest) > 0:
		n = rowFields + wire.Count(b.rest)
	case b.Table != table:
		n = rowFields
	case earlier != 0:
		n = rowFields - 1
	case clock != 0:
		n = rowFields - 2
	}
	w.Array(n)
	w.Uint(uint64(min(max(b.State, Settling), Left)))
	w.Uint(uint64(b.Version))
	w.Uint(uint64(min(at-renewed, maxAge)))
	w.Int(min(max(NoLoad, b.Load), maxLoad))
	if n > leastInRow {
		w.Int(clock)
	}
	if n > leastInRow+1 {
		w.Uint(uint64(earlier))
	}
	if n < rowFields {
		return
	}
	if b.Table != table {
		w.Uint(uint64(b.Table))
	} else {
		w.Nil()
	}
	w.Raw(b.rest)
}

// rowBytes returns the encoded size of a row with its handle.
func rowBytes(b *Heartbeat, at Stamp, table uint32) int {
	return handleBytes + wire.Size(func(w *wire.Writer) { writeRow(w, b, at, table) })
}

// maxFailureReportBytes is an upper bound for the encoded size of a failure report.
const maxFailureReportBytes = 1 + 2 + 2*handleBytes + 5 + 1

// writeFailureReport writes a failure report of a message with the given stamp: subject and watcher, the time since, and
// the evidence.
func writeFailureReport(w *wire.Writer, a *FailureReport, at Stamp) {
	w.Array(3)
	writeHandles(w, a.Subject, a.Watcher)
	w.Uint(uint64(min(max(0, at-a.At), maxAge)))
	w.Uint(uint64(min(a.Evidence, math.MaxInt8)))
}

// maxCordonBytes is an upper bound for the encoded size of a cordon.
const maxCordonBytes = 3 + 2 + MaxIDBytes + 3*wire.MaxInteger + 2 + MaxReasonBytes + maxRestBytes

// oldestCordon bounds the ages of cordons on the wire: an ended cordon is forgotten
// a moment late.
const oldestCordon = 2 * maxAge

const cordonFields = 5

// writeCordon writes a cordon of a message with the given stamp: the id, how long ago it was decided, how long it lasts, how
// much longer it is remembered, and the reason.
func writeCordon(w *wire.Writer, c *Cordon, at Stamp) {
	rest := []byte(c.rest)
	w.Array(cordonFields + wire.Count(rest))
	w.Text(string(c.ID))
	w.Uint(uint64(min(max(0, at-c.At), oldestCordon)))
	w.Uint(uint64(c.Until - c.At))
	w.Uint(uint64(c.Keep - c.Until))
	w.Text(c.Reason)
	w.Raw(rest)
}

const leastInRecord = 10 // fields that no record lacks

// writeRecord writes a record: first what each record has, then the optional fields that [Record.optional] writes.
func writeRecord(w *wire.Writer, r *Record) {
	present := [...]bool{
		r.RoostVersion != "", r.HTTP != 0, r.Keys != "", r.Handoff, len(r.Labels) > 0, r.AppVersion != "", r.Meta != "",
		r.RecentReturns != 0, r.FlappingUntil != 0, r.Drains != 0,
	}
	n := lastOf(present[:])
	if len(r.rest) > 0 {
		n = len(present)
	}
	w.Array(leastInRecord + n + wire.Count(r.rest))
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
	for field := range n {
		r.writeOptional(w, field)
	}
	w.Raw(r.rest)
}

func (r *Record) writeOptional(w *wire.Writer, field int) {
	switch field {
	case 0:
		w.Text(r.RoostVersion)
	case 1:
		w.Uint(uint64(r.HTTP))
	case 2:
		w.Bytes([]byte(r.Keys))
	case 3:
		w.Bool(r.Handoff)
	case 4:
		w.Map(len(r.Labels))
		for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
			w.Text(k)
			w.Text(r.Labels[k])
		}
	case 5:
		w.Text(r.AppVersion)
	case 6:
		w.Bytes([]byte(r.Meta))
	case 7:
		w.Uint(uint64(r.RecentReturns))
	case 8:
		w.Uint(uint64(r.FlappingUntil))
	case 9:
		w.Uint(uint64(r.Drains))
	}
}

// recordBytes returns the encoded size of r.
func recordBytes(r *Record) int { return wire.Size(func(w *wire.Writer) { writeRecord(w, r) }) }
