package firewall

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/roost-cluster/roost/lease"
)

// field is a msgpack key and its value.
type field struct {
	key   string
	value any
}

// pushPull returns the head of a full exchange, with keys in the given order.
func pushPull(tb testing.TB, fields ...field) []byte {
	tb.Helper()
	var b bytes.Buffer
	b.WriteByte(typePushPull)
	b.WriteByte(0x80 | byte(len(fields))) // a map
	e := codec.NewEncoder(&b, new(codec.MsgpackHandle))
	for _, f := range fields {
		if err := errors.Join(e.Encode(f.key), e.Encode(f.value)); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestReadHead(t *testing.T) {
	nodes := func(n any) field { return field{"Nodes", n} }
	state := func(n any) field { return field{"UserStateLen", n} }
	join := field{"Join", true}
	label := "\xf4\x04test"
	for _, c := range []struct {
		name string
		head []byte
		want error
	}{
		{"ping", []byte("\x00rest"), nil},
		{"labeled ping", []byte(label + "\x00rest"), nil},
		{"ack", []byte("\x02"), nil},
		{"encrypted", []byte("\x0a"), nil},
		{"error", []byte("\x0d"), nil},
		{"user message", []byte("\x08"), ErrHead},
		{"labeled user message", []byte(label + "\x08"), ErrHead},
		{"compressed", []byte(label + "\x09"), ErrHead},
		{"two labels", []byte(label + label + "\x00"), ErrHead},
		{"exchange", pushPull(t, nodes(1), state(10), join), nil},
		{"labeled exchange", append([]byte(label), pushPull(t, nodes(1), state(10), join)...), nil},
		{"longest label", append(append([]byte{typeLabel, 255}, make([]byte, 255)...), pushPull(t, nodes(1), state(1), join)...), nil},
		{"other order", pushPull(t, join, state(10), nodes(1)), nil},
		{"keys missing", pushPull(t, nodes(1)), nil},
		{"both limits", pushPull(t, nodes(2*lease.MaxNodes), state(lease.MaxMessageBytes), join), nil},
		{"signed integers", pushPull(t, nodes(int32(2*lease.MaxNodes)), state(int64(lease.MaxMessageBytes)), join), nil},
		{"too many nodes", pushPull(t, nodes(2*lease.MaxNodes+1), state(0), join), ErrHead},
		{"a million nodes", pushPull(t, nodes(1<<20), state(0), join), ErrHead},
		{"a million nodes, 64 bits", pushPull(t, nodes(uint64(1<<20)), state(0), join), ErrHead},
		{"too many nodes at last", pushPull(t, nodes(1), state(0), nodes(1<<20)), ErrHead},
		{"negative", pushPull(t, nodes(int64(-1)), state(0), join), ErrHead},
		{"large state", pushPull(t, nodes(1), state(lease.MaxMessageBytes+1), join), ErrHead},
		{"float", pushPull(t, nodes(float64(1<<20)), state(0), join), ErrHead},
		{"no boolean", pushPull(t, nodes(1), field{"Join", 1}), ErrHead},
		{"unknown key", pushPull(t, field{"nodes", 1}), ErrHead},
		{"long key", pushPull(t, field{strings.Repeat("x", 40), 1}), ErrHead},
		{"four keys", pushPull(t, nodes(1), state(0), join, join), ErrHead},
		{"array", []byte{typePushPull, 0x93, 0xce, 0, 16, 0, 0, 0, 0xc3}, ErrHead},
		{"nothing", nil, io.EOF},
		{"label cut short", []byte(label[:3]), io.EOF},
		{"label alone", []byte(label), io.EOF},
		{"exchange cut short", pushPull(t, nodes(1), state(1<<16))[:25], io.EOF},
	} {
		err := readHead(bufio.NewReaderSize(bytes.NewReader(c.head), maxHead), "test", Keys{SendsPlain: true, TakesPlain: true}).err
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// FuzzReadHead checks with a full decoder that every head that readHead accepts is within the limits.
func FuzzReadHead(f *testing.F) {
	f.Add(pushPull(f, field{"Nodes", 1}, field{"UserStateLen", 10}, field{"Join", true}))
	f.Add(pushPull(f, field{"Nodes", int16(5000)}, field{"UserStateLen", uint32(math.MaxUint32)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != typePushPull ||
			readHead(bufio.NewReaderSize(bytes.NewReader(b), maxHead), "", Keys{SendsPlain: true, TakesPlain: true}).err != nil {
			return
		}
		var h struct{ Nodes, UserStateLen int64 }
		if err := codec.NewDecoderBytes(b[1:], new(codec.MsgpackHandle)).Decode(&h); err != nil {
			t.Fatalf("%x passes and cannot be read: %v", b, err)
		}
		if h.Nodes > 2*lease.MaxNodes || h.UserStateLen > lease.MaxMessageBytes {
			t.Errorf("%x passes: %+v", b, h)
		}
	})
}
