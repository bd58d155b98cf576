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

// Decode parses the wire form of a message. The result is valid and shares no memory with b. Decode fails
// with ErrVersion or ErrMalformed.
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
	table   uint32 // table digest that most rows share
}

func (d *decoder) message() {
	d.Fields(1, func() {
		if version := d.Uint(math.MaxUint64); !d.Failed() {
			d.version = version
		}
		if d.version < MinWireVersion || d.version > WireVersion {
			d.Fail("an unknown version") // the rest of the message may have any format
		}
		if d.Left() < headFields-1 {
			d.Fail("the head is too short")
		}
		d.head()
		d.body()
	})
	if n := len(d.m.Heartbeats); n > 0 && d.m.Heartbeats[n-1].State == 0 {
		d.Fail("handles without their rows")
	}
}

// head reads the header fields, to which all other fields refer.
func (d *decoder) head() {
	m := d.m
	m.Settings = uint32(d.Uint(math.MaxUint32))
	m.From = Handle(d.Handle())
	if m.Stamp = Stamp(d.Uint(maxStamp)); m.Stamp < minStart {
		d.Fail("the stamp is from before the start of time")
	}
	flags := d.Uint(math.MaxUint64)
	m.Provisional, m.PullCordons = flags&flagProvisional != 0, flags&flagPullCordons != 0
	m.SentAt = d.wall()
}

func (d *decoder) body() {
	m := d.m
	d.Optional(func() { d.table = uint32(d.Uint(math.MaxUint32)) })
	d.Optional(d.rowHandles)
	d.Optional(d.rows)
	d.Optional(d.ages)
	d.Optional(func() { m.Cluster = d.clusterID() })
	d.Optional(func() { m.Extra = slices.Clone(d.Bytes(MaxExtraBytes)) })
	d.Optional(func() { m.Missed = Stamp(d.Uint(maxStamp)) })
	d.Optional(func() { d.List(MaxNodes, func() { m.Records = append(m.Records, d.record()) }) })
	d.Optional(func() { d.List(maxReported, func() { m.FailureReports = append(m.FailureReports, d.failureReport()) }) })
	d.Optional(func() { m.Cordoned = uint32(d.Uint(math.MaxUint32)) })
	d.Optional(func() { d.List(MaxCordons, func() { m.Cordons = append(m.Cordons, d.cordon()) }) })
	d.Optional(func() { m.PullRecords = d.handles() })
	d.Optional(func() { m.PullLeases = d.handles() })
	d.Optional(func() { d.List(maxBuckets, func() { m.PullBuckets = append(m.PullBuckets, d.bucketDigest()) }) })
	d.Optional(func() { m.Challenge = d.Uint(math.MaxUint64) })
	d.Optional(func() { m.Echo = d.Uint(math.MaxUint64) })
	d.Optional(func() { m.Handoff = slices.Clone(d.Bytes(MaxMessageBytes)) })
}

// wall reads a wall clock, which is encoded relative to cluster time.
func (d *decoder) wall() time.Time {
	ms := int64(d.m.Stamp) + d.Int(-2*maxWall, 2*maxWall)
	if ms < -maxWall || ms > maxWall {
		d.Fail("the wall clock is out of range")
	}
	return time.UnixMilli(ms)
}

// rowHandles reads the handles of the rows that follow.
func (d *decoder) rowHandles() {
	b := d.packed(MaxNodes, handleBytes)
	d.m.Heartbeats = make([]Heartbeat, len(b)/handleBytes)
	for i := range d.m.Heartbeats {
		d.m.Heartbeats[i].Handle = Handle(wire.HandleOf(b[i*handleBytes:]))
	}
}

func (d *decoder) rows() {
	at := 0
	d.List(len(d.m.Heartbeats), func() {
		d.row(&d.m.Heartbeats[at])
		at++
	})
	if at < len(d.m.Heartbeats) {
		d.Fail("fewer rows than handles")
	}
}

func (d *decoder) row(b *Heartbeat) {
	const maxMillis = int64(maxClock / time.Millisecond)
	b.Table = d.table
	d.Fields(4, func() {
		b.State = State(d.Uint(uint64(Left)))
		b.Version = uint32(d.Uint(math.MaxUint32))
		b.Renewed = d.m.Stamp - Stamp(d.Uint(uint64(maxAge)))
		b.At, b.Load = b.Renewed, d.Int(NoLoad, maxLoad)
		d.Optional(func() { b.Clock = time.Duration(d.Int(-maxMillis, maxMillis)) * time.Millisecond })
		d.Optional(func() { b.At -= Stamp(d.Uint(maxStamp)) })
		d.Optional(func() { b.Table = uint32(d.Uint(math.MaxUint32)) })
		b.rest = d.Rest(maxRestBytes)
	})
	if b.State < Settling || b.At <= 0 {
		d.Fail("a row has no state, or is from before the start of time")
	}
}

func (d *decoder) record() *Record {
	var rec Record
	from := d.At()
	d.Fields(10, func() {
		rec.ID = NodeID(d.Text(MaxIDBytes))
		rec.Incarnation = d.Uint(maxIncarnation)
		rec.Version = uint32(d.Uint(math.MaxUint32))
		rec.Addr = d.Text(MaxAddrBytes)
		rec.APIAddr = d.Text(MaxAddrBytes)
		rec.Zone = d.Text(MaxZoneBytes)
		rec.Weight = uint32(d.Uint(MaxWeight))
		rec.Capacity = d.Int(0, math.MaxInt64)
		rec.MinWire, rec.MaxWire = uint8(d.Uint(math.MaxUint8)), uint8(d.Uint(math.MaxUint8))
		d.Optional(func() { rec.RoostVersion = d.Text(MaxRoostVersionBytes) })
		d.Optional(func() { rec.HTTP = uint32(d.Uint(MaxHTTP)) })
		d.Optional(func() { rec.Keys = string(d.Bytes(MaxKeysBytes)) })
		d.Optional(func() { rec.Handoff = d.Bool() })
		d.Optional(func() { rec.Labels = d.labels() })
		d.Optional(func() { rec.AppVersion = d.Text(MaxAppVersionBytes) })
		d.Optional(func() { rec.Meta = string(d.Bytes(MaxMetaBytes)) })
		d.Optional(func() { rec.RecentReturns = Stamp(d.Uint(maxStamp)) })
		d.Optional(func() { rec.FlappingUntil = Stamp(d.Uint(maxStamp)) })
		d.Optional(func() { rec.Drains = Stamp(d.Uint(maxStamp)) })
		d.Optional(func() { rec.Unhealthy = d.Bool() })
		rec.rest = d.Rest(maxRestBytes)
	})
	if d.Failed() {
		return nil
	}
	if err := rec.validate(d.At() - from); err != nil {
		d.Fail(err.Error())
	}
	return &rec
}

// labels reads labels, which must be sorted by key.
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

// ages reads buckets into a single allocation, which shares no memory with the message.
func (d *decoder) ages() {
	d.List(maxBuckets, func() { d.m.Ages = append(d.m.Ages, d.bucket()) })
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

// bucket reads a bucket. The result shares memory with the message.
func (d *decoder) bucket() (b Bucket) {
	d.Fields(3, func() {
		b.BucketID, b.Nodes = d.bucketID(), int(d.Uint(MaxNodes))
		end := handleBytes + (b.Nodes+1)/2
		if packed := d.Fixed(end + (b.Nodes+7)/8); packed != nil {
			b.Digest, b.ages, b.same = wire.HandleOf(packed), packed[handleBytes:end], packed[end:]
		}
	})
	return b
}

func (d *decoder) bucketDigest() (h BucketDigest) {
	d.Fields(2, func() {
		h.BucketID = d.bucketID()
		b := d.packed(maxHashes, 4)
		h.Hashes = make([]uint32, len(b)/4)
		for i := range h.Hashes {
			h.Hashes[i] = binary.BigEndian.Uint32(b[4*i:])
		}
	})
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

func (d *decoder) failureReport() (a FailureReport) {
	d.Fields(3, func() {
		if b := d.Fixed(2 * handleBytes); b != nil {
			a.Subject, a.Watcher = Handle(wire.HandleOf(b)), Handle(wire.HandleOf(b[handleBytes:]))
		}
		a.At = d.m.Stamp - Stamp(d.Uint(uint64(maxAge)))
		a.Evidence = Evidence(d.Uint(math.MaxInt8))
	})
	if a.Evidence == 0 {
		d.Fail("failure report without evidence")
	}
	return a
}

func (d *decoder) cordon() (c Cordon) {
	d.Fields(5, func() {
		c.ID = NodeID(d.Text(MaxIDBytes))
		c.At = d.m.Stamp - Stamp(d.Uint(uint64(oldestCordon)))
		c.Until = c.At + Stamp(d.Uint(uint64(maxAge)))
		c.Keep = c.Until + Stamp(d.Uint(uint64(maxAge)))
		c.Reason = d.Text(MaxReasonBytes)
		c.rest = string(d.Rest(maxRestBytes))
	})
	if err := c.Validate(); err != nil {
		d.Fail(err.Error())
	}
	return c
}

// clusterID reads founders, which must be in ascending order.
func (d *decoder) clusterID() ClusterID {
	c := ClusterID(d.handles())
	if len(c) > MaxFounders || len(c.Union(nil)) != len(c) || !slices.IsSorted(c) {
		d.Fail("the founders of a cluster are too many, or out of order")
	}
	return c
}

func (d *decoder) handles() []Handle {
	b := d.packed(MaxNodes, handleBytes)
	all := make([]Handle, len(b)/handleBytes)
	for i := range all {
		all[i] = Handle(wire.HandleOf(b[i*handleBytes:]))
	}
	return all
}

// packed reads values of size bytes each. The argument most is the maximum number of values.
func (d *decoder) packed(most, size int) []byte {
	b := d.Bytes(most * size)
	if len(b)%size != 0 {
		d.Fail("a list of handles or hashes has a wrong length")
		return nil
	}
	return b
}
