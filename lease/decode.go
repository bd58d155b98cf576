package lease

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Decode parses the wire form of a message. The result is valid in every part and
// shares no memory with b. Errors are ErrVersion and ErrMalformed.
func Decode(b []byte) (*Message, error) {
	if len(b) == 0 || len(b) > MaxMessageBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != WireVersion {
		return nil, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, b[0], WireVersion)
	}
	body := bytes.NewReader(b[1:])
	d := decoder{dec: msgpack.NewDecoder(body), body: body}
	m := d.message()
	if d.err == nil && body.Len() > 0 {
		d.fail("%d trailing bytes", body.Len())
	}
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}

// decoder reads bounded values and keeps the first error. After an error, every read
// returns zero.
type decoder struct {
	dec  *msgpack.Decoder
	body *bytes.Reader
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

func (d *decoder) message() *Message {
	var m Message
	fields := d.array(7, 8)
	m.Settings = uint32(d.uint(math.MaxUint32))
	m.From = Handle(d.uint(1<<handleBits - 1))
	m.SentAt = time.UnixMilli(d.int())
	table := uint32(d.uint(math.MaxUint32))
	m.Beats = d.beats(d.bytes(MaxMessageBytes), table)
	if n := d.array(0, MaxNodes); n > 0 {
		m.Records = make([]*Record, 0, min(n, d.body.Len()/minRecordBytes))
		for range n {
			r := d.record()
			if d.err != nil {
				return nil
			}
			m.Records = append(m.Records, r)
		}
	}
	wants := d.bytes(MaxNodes * handleBytes)
	if len(wants)%handleBytes != 0 {
		d.fail("wants of %d bytes", len(wants))
	}
	for ; len(wants) >= handleBytes; wants = wants[handleBytes:] {
		m.Wants = append(m.Wants, handleAt(wants))
	}
	if fields > 7 {
		m.Extra = d.bytes(MaxExtraBytes)
	}
	return &m
}

func (d *decoder) record() *Record {
	var r Record
	d.array(9, 9)
	r.ID = NodeID(d.bytes(MaxIDBytes))
	r.Incarnation = d.uint(math.MaxUint64)
	r.Version = uint32(d.uint(math.MaxUint32))
	r.Addr = string(d.bytes(MaxAddrBytes))
	r.APIAddr = string(d.bytes(MaxAddrBytes))
	r.Zone = string(d.bytes(MaxZoneBytes))
	r.Weight = uint32(d.uint(math.MaxUint32))
	r.Capacity = d.int()
	if n := d.count(d.dec.DecodeMapLen, MaxLabels); n > 0 {
		r.Labels = make(map[string]string, n)
		for range n {
			k := string(d.bytes(MaxLabelBytes))
			r.Labels[k] = string(d.bytes(MaxLabelBytes))
		}
	}
	if d.err == nil {
		if err := r.Validate(); err != nil {
			d.fail("%v", err)
		}
	}
	return &r
}

func (d *decoder) beats(b []byte, table uint32) []Beat {
	if len(b) == 0 {
		return nil
	}
	beats := make([]Beat, 0, len(b)/minBeatBytes+1)
	for len(b) > 0 && d.err == nil {
		if len(b) < handleBytes {
			d.fail("a beat is cut short")
			break
		}
		row := rowReader{b: b[handleBytes:], ok: true}
		beat := Beat{Handle: handleAt(b), Table: table}
		head := row.uvarint(math.MaxUint32<<3 | 7)
		beat.Seq = uint32(head >> 3)
		beat.State = Settling + State(head>>1&3)
		beat.Version = uint32(row.uvarint(math.MaxUint32))
		beat.Age = time.Duration(row.uvarint(uint64(maxAge/time.Microsecond))) * time.Microsecond
		beat.Clock = time.Duration(row.varint(int64(maxClock/time.Millisecond))) * time.Millisecond
		beat.Load = int64(row.uvarint(maxLoad+1)) - 1
		if head&1 != 0 {
			beat.Table = row.uint32()
		}
		if !row.ok {
			d.fail("beat %d is cut short or out of range", len(beats))
			break
		}
		beats = append(beats, beat)
		b = row.b
	}
	return beats
}

// rowReader reads the fields of a beat; ok becomes false at the first fault.
type rowReader struct {
	b  []byte
	ok bool
}

func (r *rowReader) advance(n int, fits bool) {
	if n <= 0 || !fits {
		r.ok = false
		return
	}
	r.b = r.b[n:]
}

func (r *rowReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	r.advance(n, v <= limit)
	return v
}

func (r *rowReader) varint(limit int64) int64 {
	v, n := binary.Varint(r.b)
	r.advance(n, -limit <= v && v <= limit)
	return v
}

func (r *rowReader) uint32() uint32 {
	if len(r.b) < 4 {
		r.ok = false
		return 0
	}
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (d *decoder) count(read func() (int, error), limit int) int {
	if d.err != nil {
		return 0
	}
	n, err := read()
	switch {
	case err != nil:
		d.fail("%v", err)
	case n < 0 || n > limit:
		d.fail("%d elements, at most %d", n, limit)
	default:
		return n
	}
	return 0
}

func (d *decoder) array(least, most int) int {
	n := d.count(d.dec.DecodeArrayLen, most)
	if n < least {
		d.fail("%d elements, at least %d", n, least)
	}
	return n
}

func (d *decoder) bytes(limit int) []byte {
	n := d.count(d.dec.DecodeBytesLen, min(limit, d.body.Len()))
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	if err := d.dec.ReadFull(b); err != nil {
		d.fail("%v", err)
		return nil
	}
	return b
}

func (d *decoder) uint(limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := d.dec.DecodeUint64()
	if err != nil {
		d.fail("%v", err)
	}
	if v > limit {
		d.fail("number %d, at most %d", v, limit)
	}
	return v
}

func (d *decoder) int() int64 {
	if d.err != nil {
		return 0
	}
	v, err := d.dec.DecodeInt64()
	if err != nil {
		d.fail("%v", err)
	}
	return v
}
