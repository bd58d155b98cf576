package lease

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
)

// Decode parses the wire form of a message. The result is valid in every part and
// shares no memory with b. Errors are ErrVersion and ErrMalformed.
func Decode(b []byte) (*Message, error) {
	if len(b) > MaxMessageBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	d := decoder{m: new(Message), version: WireVersion}
	err := wire.Read(b, func(r *wire.Reader) {
		d.Reader = r
		d.message()
	})
	switch {
	case d.version < MinWireVersion || d.version > WireVersion:
		return nil, fmt.Errorf("%w: %d, this program reads %d to %d", ErrVersion, d.version, MinWireVersion, WireVersion)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return d.m, nil
}

// decoder reads a message.
type decoder struct {
	*wire.Reader
	m       *Message
	version uint64
	table   uint32 // that most rows share
}

func (d *decoder) message() {
	outer := d.Enter(1)
	if version := d.Uint(math.MaxUint64); !d.Failed() {
		d.version = version
	}
	if d.version < MinWireVersion || d.version > WireVersion {
		return // the rest may have any form
	}
	if d.Left() < headFields-1 {
		d.Fail("the head is too short")
	}
	for field := fieldSettings; field < messageFields && d.Left() > 0; field++ {
		if field < headFields || !d.Absent() {
			d.field(field)
		}
	}
	d.Leave(outer)
	if d.m.Stamp < minStart {
		d.Fail("the stamp is from before the start of time")
	}
	if n := len(d.m.Heartbeats); n > 0 && d.m.Heartbeats[n-1].State == 0 {
		d.Fail("handles without their rows")
	}
}

// field reads one field. The fields that others refer to come first.
func (d *decoder) field(field int) { //nolint:cyclop,funlen // a case for each field
	switch m := d.m; field {
	case fieldSettings:
		m.Settings = uint32(d.Uint(math.MaxUint32))
	case fieldFrom:
		m.From = Handle(d.Handle())
	case fieldStamp:
		m.Stamp = Stamp(d.Uint(maxStamp))
	case fieldFlags:
		flags := d.Uint(math.MaxUint64)
		m.Provisional, m.PullCordons = flags&flagProvisional != 0, flags&flagPullCordons != 0
	case fieldSentAt:
		m.SentAt = d.wall()
	case fieldTable:
		d.table = uint32(d.Uint(math.MaxUint32))
	case fieldHandles:
		d.rowHandles()
	case fieldRows:
		d.rows()
	case fieldAges:
		d.ages()
	case fieldCluster:
		m.Cluster = d.clusterID()
	case fieldExtra:
		m.Extra = slices.Clone(d.Bytes(MaxExtraBytes))
	case fieldMissed:
		m.Missed = Stamp(d.Uint(maxStamp))
	case fieldRecords:
		m.Records = list(d, d.record, MaxNodes, "records")
	case fieldFailureReports:
		m.FailureReports = list(d, d.failureReport, maxReported, "failure reports")
	case fieldCordoned:
		m.Cordoned = uint32(d.Uint(math.MaxUint32))
	case fieldCordons:
		m.Cordons = list(d, d.cordon, MaxCordons, "cordons")
	case fieldPullRecords:
		m.PullRecords = d.handles()
	case fieldPullLeases:
		m.PullLeases = d.handles()
	case fieldPullBuckets:
		m.PullBuckets = list(d, d.bucketDigest, maxBuckets, "buckets")
	case fieldChallenge:
		m.Challenge = d.Uint(math.MaxUint64)
	case fieldEcho:
		m.Echo = d.Uint(math.MaxUint64)
	case fieldHandoff:
		m.Handoff = slices.Clone(d.Bytes(MaxMessageBytes))
	}
}

// list reads an array. More than most elements are a problem.
func list[T any](d *decoder, element func() T, most int, what string) (all []T) {
	outer := d.Enter(0)
	if d.Left() > most {
		d.Fail("too many " + what)
	}
	for d.Left() > 0 {
		all = append(all, element())
	}
	d.Leave(outer)
	return all
}

// wall reads a wall clock, relative to cluster time.
func (d *decoder) wall() time.Time {
	ms := int64(d.m.Stamp) + d.Int(-2*maxWall, 2*maxWall)
	if ms < -maxWall || ms > maxWall {
		d.Fail("the wall clock is out of range")
	}
	return time.UnixMilli(ms)
}

// rowHandles reads the handles of the rows that follow.
func (d *decoder) rowHandles() {
	b := d.packed()
	d.m.Heartbeats = make([]Heartbeat, len(b)/handleBytes)
	for i := range d.m.Heartbeats {
		d.m.Heartbeats[i].Handle = Handle(wire.HandleOf(b[i*handleBytes:]))
	}
}

func (d *decoder) rows() {
	outer := d.Enter(0)
	if d.Left() != len(d.m.Heartbeats) {
		d.Fail("other rows than handles")
	}
	for i := range d.m.Heartbeats {
		d.row(&d.m.Heartbeats[i])
	}
	d.Leave(outer)
}

func (d *decoder) row(b *Heartbeat) {
	outer := d.Enter(leastInRow)
	b.State = State(d.Uint(uint64(Left)))
	b.Version = uint32(d.Uint(math.MaxUint32))
	b.Renewed = d.m.Stamp - Stamp(d.Uint(uint64(maxAge)))
	b.Load = d.Int(NoLoad, maxLoad)
	b.Clock = time.Duration(d.Int(-int64(maxClock/time.Millisecond), int64(maxClock/time.Millisecond))) * time.Millisecond
	b.At = b.Renewed - Stamp(d.Uint(maxStamp))
	if b.Table = d.table; !d.Absent() {
		b.Table = uint32(d.Uint(math.MaxUint32))
	}
	b.rest = d.Rest(maxRestBytes)
	d.Leave(outer)
	if b.State < Settling || b.At <= 0 {
		d.Fail("a row has no state, or is from before the start of time")
	}
}

func (d *decoder) record() *Record {
	from := d.At()
	outer := d.Enter(leastInRecord)
	var rec Record
	rec.ID = NodeID(d.Text(MaxIDBytes))
	rec.Incarnation = d.Uint(maxIncarnation)
	rec.Version = uint32(d.Uint(math.MaxUint32))
	rec.Addr = d.Text(MaxAddrBytes)
	rec.APIAddr = d.Text(MaxAddrBytes)
	rec.Zone = d.Text(MaxZoneBytes)
	rec.Weight = uint32(d.Uint(MaxWeight))
	rec.Capacity = d.Int(0, math.MaxInt64)
	rec.MinWire, rec.MaxWire = uint8(d.Uint(math.MaxUint8)), uint8(d.Uint(math.MaxUint8))
	rec.RoostVersion = d.Text(MaxRoostVersionBytes)
	rec.HTTP = uint32(d.Uint(MaxHTTP))
	rec.Keys = string(d.Bytes(MaxKeysBytes))
	rec.Handoff = d.Bool()
	rec.Labels = d.labels()
	rec.AppVersion = d.Text(MaxAppVersionBytes)
	rec.Meta = string(d.Bytes(MaxMetaBytes))
	rec.RecentReturns, rec.FlappingUntil = Stamp(d.Uint(maxStamp)), Stamp(d.Uint(maxStamp))
	rec.Drains = Stamp(d.Uint(maxStamp))
	rec.rest = d.Rest(maxRestBytes)
	d.Leave(outer)
	if d.Failed() {
		return nil
	}
	if err := rec.validate(d.At() - from); err != nil {
		d.Fail(err.Error())
	}
	return &rec
}

// labels reads labels in the order of their keys.
func (d *decoder) labels() (labels map[string]string) {
	n := d.Map(MaxLabels)
	if n > 0 {
		labels = make(map[string]string, n)
	}
	last := ""
	for i := range n {
		k := d.Text(MaxLabelBytes)
		labels[k] = d.Text(MaxValueBytes)
		if i > 0 && k <= last {
			d.Fail("labels out of order")
		}
		last = k
	}
	return labels
}

// ages reads buckets. They share one piece of memory, and none with the message.
func (d *decoder) ages() {
	d.m.Ages = list(d, d.bucket, maxBuckets, "buckets")
	size := 0
	for i := range d.m.Ages {
		size += len(d.m.Ages[i].ages) + len(d.m.Ages[i].same)
	}
	own := make([]byte, 0, size)
	for i := range d.m.Ages {
		b := &d.m.Ages[i]
		at, mid := len(own), len(own)+len(b.ages)
		own = append(append(own, b.ages...), b.same...)
		b.ages, b.same = own[at:mid:mid], own[mid:len(own):len(own)]
	}
}

// bucket reads a bucket that shares memory with the message.
func (d *decoder) bucket() Bucket {
	outer := d.Enter(3)
	b := Bucket{BucketID: d.bucketID(), Nodes: int(d.Uint(MaxNodes))}
	end := handleBytes + (b.Nodes+1)/2
	if packed := d.Fixed(end + (b.Nodes+7)/8); packed != nil {
		b.Digest, b.ages, b.same = wire.HandleOf(packed), packed[handleBytes:end], packed[end:]
	}
	d.Leave(outer)
	return b
}

func (d *decoder) bucketDigest() BucketDigest {
	outer := d.Enter(2)
	h := BucketDigest{BucketID: d.bucketID()}
	b := d.Bytes(4 * maxHashes)
	if len(b)%4 != 0 {
		d.Fail("a list of hashes has a wrong length")
	}
	if len(b) > 0 {
		h.Hashes = make([]uint32, len(b)/4)
	}
	for i := range h.Hashes {
		h.Hashes[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	d.Leave(outer)
	return h
}

func (d *decoder) bucketID() (id BucketID) {
	number := d.Uint(1<<(maxBits+1) - 1)
	if number == 0 {
		d.Fail("a bucket without a number")
		return id
	}
	id.Bits = uint8(bits.Len64(number) - 1)
	id.Index = uint32(number) &^ (1 << id.Bits)
	return id
}

func (d *decoder) failureReport() FailureReport {
	outer := d.Enter(3)
	var a FailureReport
	if b := d.Fixed(2 * handleBytes); b != nil {
		a.Subject, a.Watcher = Handle(wire.HandleOf(b)), Handle(wire.HandleOf(b[handleBytes:]))
	}
	a.At = d.m.Stamp - Stamp(d.Uint(uint64(maxAge)))
	a.Evidence = Evidence(d.Uint(math.MaxInt8))
	d.Leave(outer)
	if a.Evidence == 0 {
		d.Fail("failure report without evidence")
	}
	return a
}

func (d *decoder) cordon() Cordon {
	outer := d.Enter(cordonFields)
	var c Cordon
	c.ID = NodeID(d.Text(MaxIDBytes))
	c.At = d.m.Stamp - Stamp(d.Uint(uint64(oldestCordon)))
	c.Until = c.At + Stamp(d.Uint(uint64(maxAge)))
	c.Keep = c.Until + Stamp(d.Uint(uint64(maxAge)))
	c.Reason = d.Text(MaxReasonBytes)
	c.rest = string(d.Rest(maxRestBytes))
	d.Leave(outer)
	if err := c.Validate(); err != nil {
		d.Fail(err.Error())
	}
	return c
}

// clusterID reads founders, ascending.
func (d *decoder) clusterID() ClusterID {
	c := ClusterID(d.handles())
	if len(c) > MaxFounders || len(c.Union(nil)) != len(c) || !slices.IsSorted(c) {
		d.Fail("the founders of a cluster are too many, or out of order")
	}
	return c
}

func (d *decoder) handles() []Handle {
	b := d.packed()
	all := make([]Handle, len(b)/handleBytes)
	for i := range all {
		all[i] = Handle(wire.HandleOf(b[i*handleBytes:]))
	}
	return all
}

// packed reads at most MaxNodes handles.
func (d *decoder) packed() []byte {
	b := d.Bytes(MaxNodes * handleBytes)
	if len(b)%handleBytes != 0 {
		d.Fail("a list of handles has a wrong length")
		return nil
	}
	return b
}
