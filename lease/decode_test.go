package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func TestDecodeRejects(t *testing.T) {
	good := Encode(goldenMessage())
	mutate := func(change func(*Message)) []byte {
		m := goldenMessage()
		m.Records[0] = m.Records[0].clone()
		change(m)
		return Encode(m)
	}
	for _, tc := range []struct {
		name string
		wire []byte
		want error
	}{
		{"nothing", nil, ErrMalformed},
		{"version 0", append([]byte{0}, good[1:]...), ErrVersion},
		{"a later version", append([]byte{WireVersion + 1}, good[1:]...), ErrVersion},
		{"a later version of another form", []byte{WireVersion + 1, 0xff}, ErrVersion},
		{"a trailing byte", append(bytes.Clone(good), 0), ErrMalformed},
		{"two messages", append(bytes.Clone(good), good...), ErrMalformed},
		{"longer than any message", make([]byte, MaxMessageBytes+1), ErrMalformed},
		{"no id", mutate(func(m *Message) { m.Records[0].ID = "" }), ErrMalformed},
		{"an id out of bounds", mutate(func(m *Message) { m.Records[0].ID = "a b" }), ErrMalformed},
		{"a wide seq", wide(good), ErrMalformed},
		{"too much weight", mutate(func(m *Message) { m.Records[0].Weight = MaxWeight + 1 }), ErrMalformed},
		{"negative capacity", mutate(func(m *Message) { m.Records[0].Capacity = -1 }), ErrMalformed},
		{"a long address", mutate(func(m *Message) { m.Records[0].Addr = strings.Repeat("x", MaxAddrBytes+1) }), ErrMalformed},
		{"a broken rune", mutate(func(m *Message) { m.Records[0].Zone = "\xff" }), ErrMalformed},
		{"an empty label", mutate(func(m *Message) { m.Records[0].Labels = map[string]string{"": "x"} }), ErrMalformed},
		{"too many labels", mutate(func(m *Message) { m.Records[0].Labels = manyLabels(MaxLabels+1, 1) }), ErrMalformed},
		{"a long record", mutate(func(m *Message) { m.Records[0].Labels = manyLabels(MaxLabels, 60) }), ErrMalformed},
		{"a wide sender", mutate(func(m *Message) { m.From = 1 << handleBits }), ErrMalformed},
		{"too many records", mutate(func(m *Message) {
			for len(m.Records) <= MaxNodes {
				m.Records = append(m.Records, rec("x", 1))
			}
		}), ErrMalformed},
		{"too many wants", mutate(func(m *Message) { m.Wants = make([]Handle, MaxNodes+1) }), ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if m, err := Decode(tc.wire); !errors.Is(err, tc.want) || m != nil {
				t.Errorf("Decode = %v, %v, want %v", m, err, tc.want)
			}
		})
	}
	for n := 1; n < len(good); n++ {
		if _, err := Decode(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at byte %d: %v", n, err)
		}
	}
}

// wide returns the golden message with its greatest sequence number raised by one, to
// the least one out of range.
func wide(golden []byte) []byte {
	head := binary.AppendUvarint(nil, (math.MaxUint32+1)<<3)
	b := bytes.Replace(golden, []byte("\xfe\xff\xff\xff\x7f"), head, 1)
	return bytes.Replace(b, []byte("\xc4\x3d"), []byte("\xc4\x3e"), 1) // one more byte of rows
}

func manyLabels(n, size int) map[string]string {
	labels := make(map[string]string)
	for i := range n {
		labels[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", size)
	}
	return labels
}

// hostile returns messages that claim more content than they have.
func hostile() map[string][]byte {
	build := func(fields func(e *msgpack.Encoder)) []byte {
		buf := bytes.NewBuffer([]byte{WireVersion})
		e := msgpack.NewEncoder(buf)
		_ = e.EncodeArrayLen(7)
		for range 4 {
			_ = e.EncodeUint(1)
		}
		fields(e)
		return buf.Bytes()
	}
	return map[string][]byte{
		"beats":  build(func(e *msgpack.Encoder) { _ = e.EncodeBytesLen(math.MaxInt32) }),
		"within": build(func(e *msgpack.Encoder) { _ = e.EncodeBytesLen(MaxMessageBytes) }),
		"records": build(func(e *msgpack.Encoder) {
			_ = e.EncodeBytesLen(0)
			_ = e.EncodeArrayLen(math.MaxInt32)
		}),
		"many records": build(func(e *msgpack.Encoder) {
			_ = e.EncodeBytesLen(0)
			_ = e.EncodeArrayLen(MaxNodes)
		}),
		"labels": build(func(e *msgpack.Encoder) {
			_ = e.EncodeBytesLen(0)
			_ = e.EncodeArrayLen(1)
			_ = e.EncodeArrayLen(9)
			_ = e.EncodeString("x")
			for range 2 {
				_ = e.EncodeUint(0)
			}
			for range 3 {
				_ = e.EncodeString("")
			}
			for range 2 {
				_ = e.EncodeUint(0)
			}
			_ = e.EncodeMapLen(math.MaxInt32)
		}),
		"array": {WireVersion, 0xdd, 0xff, 0xff, 0xff, 0xff},
	}
}

// A decoder allocates by the size of a message, not by its claims.
func TestDecodeAllocationIsBounded(t *testing.T) {
	allocated := func(wire []byte) (bytes uint64, err error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = Decode(wire)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, err
	}
	for name, wire := range hostile() {
		got, err := allocated(wire)
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if got > 64<<10 {
			t.Errorf("%s: %d bytes claim %d", name, len(wire), got)
		}
	}
	rows := &Message{SentAt: epoch, Beats: make([]Beat, 100_000)}
	many := &Message{SentAt: epoch}
	for range MaxNodes {
		many.Records = append(many.Records, &Record{ID: "x"})
	}
	for name, m := range map[string]*Message{"rows": rows, "records": many} {
		wire := Encode(m)
		got, err := allocated(wire)
		if factor := float64(got) / float64(len(wire)); err != nil || factor > 100 {
			t.Errorf("%s: %d bytes take %d (%.0f×), %v", name, len(wire), got, factor, err)
		} else {
			t.Logf("%s: %d bytes take %d (%.0f×)", name, len(wire), got, factor)
		}
	}
}
