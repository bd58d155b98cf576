package lease

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// Decode parses the wire form of a message. The result is valid in every part and
// shares no memory with b. Errors are ErrVersion and ErrMalformed.
func Decode(b []byte) (*Message, error) {
	if len(b) == 0 || len(b) > MaxMessageBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	if b[0] < MinWireVersion || b[0] > WireVersion {
		return nil, fmt.Errorf("%w: %d, this program reads %d to %d", ErrVersion, b[0], MinWireVersion, WireVersion)
	}
	r := reader{b: b[1:]}
	m := r.message()
	if r.problem != "" {
		return nil, fmt.Errorf("%w: %s", ErrMalformed, r.problem)
	}
	return m, nil
}

// reader reads bounded values from b and keeps the first problem. After a problem, b is
// empty and every read returns zero.
type reader struct {
	b       []byte
	problem string
}

func (r *reader) fail(what string) {
	if r.problem == "" {
		r.problem = what
	}
	r.b = nil
}

func (r *reader) message() *Message {
	var m Message
	table := uint32(0)
	for last := uint64(0); len(r.b) > 0; {
		kind := r.uvarint(math.MaxUint64)
		body := reader{b: r.take(r.uvarint(MaxMessageBytes))}
		if kind <= last {
			r.fail("a section comes twice, or the sections are out of order")
		}
		last = kind
		m.section(kind, &body, &table)
		if body.problem != "" {
			r.fail(body.problem)
		}
		if m.Stamp < minStart { // the head comes first
			r.fail("the head is missing, or its stamp is from before the start of time")
		}
	}
	if m.Stamp == 0 {
		r.fail("no head")
	}
	return &m
}

// section reads one section into m. What stands behind the known fields of the head is
// skipped, as sections of unknown kinds are.
func (m *Message) section(kind uint64, r *reader, table *uint32) { //nolint:cyclop // a case for each kind
	switch kind {
	case sectionHead:
		m.Settings, m.From = r.fixed32(), r.handle()
		m.Stamp = Stamp(r.uvarint(maxStamp))
		m.Provisional = r.uvarint(math.MaxUint64)&flagProvisional != 0
		m.SentAt = time.UnixMilli(r.varint(math.MaxInt64))
	case sectionRows:
		*table = r.fixed32()
		m.Heartbeats = make([]Heartbeat, 0, min(len(r.b)/minRowBytes, MaxNodes)+1)
		m.Heartbeats = list(m.Heartbeats, r, func() Heartbeat { return r.row(m.Stamp, *table) }, MaxNodes, "rows")
	case sectionRecords:
		m.Records = list(m.Records, r, r.record, MaxNodes, "records")
	case sectionAges:
		own := reader{b: slices.Clone(r.b)} // buckets share its memory
		m.Ages = list(m.Ages, &own, own.bucket, maxBuckets, "buckets")
		if own.problem != "" {
			r.fail(own.problem)
		}
	case sectionPullRecords:
		m.PullRecords = r.handles()
	case sectionPullLeases:
		m.PullLeases = r.handles()
	case sectionPullBuckets:
		m.PullBuckets = list(m.PullBuckets, r, r.bucketDigest, maxBuckets, "buckets")
	case sectionChallenge:
		m.Challenge = r.fixed64()
	case sectionEcho:
		m.Echo = r.fixed64()
	case sectionExtra:
		if len(r.b) > MaxExtraBytes {
			r.fail("extra is too long")
		}
		m.Extra = slices.Clone(r.b)
	case sectionFailureReports:
		m.FailureReports = list(m.FailureReports, r, func() FailureReport { return r.failureReport(m.Stamp) }, maxReported, "failure reports")
	case sectionCordons:
		m.readCordons(r)
	case sectionHandoff:
		m.Handoff = slices.Clone(r.b)
	case sectionMissed:
		m.Missed = Stamp(min(r.fixed64(), maxStamp))
	case sectionCluster:
		m.Cluster = r.clusterID()
	}
}

// list appends elements until r is read to its end. More than most elements are a problem.
func list[T any](to []T, r *reader, element func() T, most int, what string) []T {
	for len(r.b) > 0 {
		if to = append(to, element()); len(to) > most {
			r.fail("too many " + what)
		}
	}
	return to
}

func (r *reader) row(at Stamp, table uint32) Heartbeat {
	row := reader{b: r.take(uint64(r.fixed8()))}
	b := Heartbeat{Handle: row.handle(), Table: table}
	head := row.uvarint(7)
	b.State = Settling + State(head>>1)
	b.Version = uint32(row.uvarint(math.MaxUint32))
	b.Renewed = at - Stamp(row.uvarint(uint64(maxAge)))
	b.At = b.Renewed - Stamp(row.uvarint(maxStamp))
	b.Clock = time.Duration(row.varint(int64(maxClock/time.Millisecond))) * time.Millisecond
	b.Load = int64(row.uvarint(maxLoad+1)) - 1
	if head&1 != 0 {
		b.Table = row.fixed32()
	}
	b.rest = row.rest(maxRestBytes)
	if row.problem == "" && b.At <= 0 {
		row.fail("a heartbeat is from before the start of time")
	}
	if row.problem != "" {
		r.fail("row: " + row.problem)
	}
	return b
}

func (r *reader) record() *Record {
	size := r.uvarint(MaxRecordBytes)
	body := reader{b: r.take(size)}
	var rec Record
	rec.ID = NodeID(body.text(MaxIDBytes))
	rec.Incarnation = body.uvarint(maxIncarnation)
	rec.Version = uint32(body.uvarint(math.MaxUint32))
	rec.Addr = body.text(MaxAddrBytes)
	rec.APIAddr = body.text(MaxAddrBytes)
	rec.Zone = body.text(MaxZoneBytes)
	rec.Weight = uint32(body.uvarint(MaxWeight))
	rec.Capacity = body.varint(math.MaxInt64)
	if n := body.uvarint(MaxLabels); n > 0 {
		rec.Labels = make(map[string]string, n)
		for range n {
			k := body.text(MaxLabelBytes)
			rec.Labels[k] = body.text(MaxValueBytes)
		}
	}
	rec.MinWire, rec.MaxWire = body.fixed8(), body.fixed8()
	rec.Handoff = body.fixed8() != 0
	rec.RecentReturns, rec.FlappingUntil = Stamp(body.uvarint(maxStamp)), Stamp(body.uvarint(maxStamp))
	rec.Keys = body.text(MaxKeysBytes)
	rec.RoostVersion, rec.AppVersion = body.text(MaxRoostVersionBytes), body.text(MaxAppVersionBytes)
	rec.HTTP = uint32(body.uvarint(MaxHTTP))
	rec.Drains = Stamp(body.uvarint(maxStamp))
	rec.Meta = body.text(MaxMetaBytes)
	rec.rest = body.rest(maxRestBytes)
	if body.problem != "" {
		r.fail("record: " + body.problem)
	} else if err := rec.validate(int(size)); err != nil {
		r.fail(err.Error())
	}
	return &rec
}

// bucket reads a bucket that shares memory with r.
func (r *reader) bucket() Bucket {
	b := Bucket{BucketID: r.bucketID()}
	n := r.uvarint(MaxNodes)
	b.Nodes, b.Digest = int(n), uint64(r.handle())
	b.ages, b.same = r.take((n+1)/2), r.take((n+7)/8)
	return b
}

// failureReport reads a failure report. What stands behind its known fields is skipped.
func (r *reader) failureReport(at Stamp) FailureReport {
	row := reader{b: r.take(uint64(r.fixed8()))}
	a := FailureReport{Subject: row.handle(), Watcher: row.handle()}
	a.At = at - Stamp(row.uvarint(uint64(maxAge)))
	a.Evidence = Evidence(row.uvarint(math.MaxInt8))
	if row.problem != "" {
		r.fail("failure report: " + row.problem)
	} else if a.Evidence == 0 {
		r.fail("failure report without evidence")
	}
	return a
}

func (r *reader) bucketDigest() BucketDigest {
	h := BucketDigest{BucketID: r.bucketID()}
	hashes := reader{b: r.take(4 * r.uvarint(maxHashes))}
	for len(hashes.b) > 0 {
		h.Hashes = append(h.Hashes, hashes.fixed32())
	}
	return h
}

func (r *reader) bucketID() BucketID {
	id := BucketID{Bits: uint8(r.uvarint(maxBits))}
	id.Index = uint32(r.uvarint(1<<id.Bits - 1))
	return id
}

// take returns the next n bytes, which share memory with r.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("it is cut short")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// rest returns a copy of all that is left, at most most bytes: fields of a later release.
func (r *reader) rest(most int) []byte {
	if len(r.b) > most {
		r.fail("the unknown fields are too long")
	}
	if len(r.b) == 0 {
		return nil
	}
	return slices.Clone(r.take(uint64(len(r.b))))
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.fail("a number is cut short or out of range")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint(limit int64) int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 || v > limit || v < -limit {
		r.fail("a number is cut short or out of range")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// fixed reads an integer of n bytes, the highest first.
func (r *reader) fixed(n uint64) (v uint64) {
	for _, b := range r.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (r *reader) fixed8() uint8   { return uint8(r.fixed(1)) }
func (r *reader) fixed32() uint32 { return uint32(r.fixed(4)) }
func (r *reader) fixed64() uint64 { return r.fixed(8) }
func (r *reader) handle() Handle  { return Handle(r.fixed(handleBytes)) }

func (r *reader) text(limit uint64) string { return string(r.take(r.uvarint(limit))) }

// clusterID reads founders, ascending.
func (r *reader) clusterID() ClusterID {
	c := ClusterID(r.handles())
	if len(c) > MaxFounders || len(c.Union(nil)) != len(c) || !slices.IsSorted(c) {
		r.fail("the founders of a cluster are too many, or out of order")
	}
	return c
}

func (r *reader) handles() (all []Handle) {
	if len(r.b)%handleBytes != 0 || len(r.b) > MaxNodes*handleBytes {
		r.fail("a list of handles has a wrong length")
	}
	for len(r.b) > 0 {
		all = append(all, r.handle())
	}
	return all
}
