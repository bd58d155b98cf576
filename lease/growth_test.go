package lease

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/internal/wire"
)

// later encodes m as a later release of the same version might write it, with unknown fields at the end of the message,
// of each row and of each record.
func later(m *Message, field []byte) []byte {
	grown := *m
	grown.Heartbeats, grown.Records = slices.Clone(m.Heartbeats), nil
	for i := range grown.Heartbeats {
		grown.Heartbeats[i].rest = field
	}
	for _, r := range m.Records {
		r = r.clone()
		r.rest = field
		grown.Records = append(grown.Records, r)
	}
	return grow(Encode(&grown), messageFields, text("known to nobody"),
		[]byte{0x93, 0xc0, 0x81, 0xa1, 'k', 0xcb, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3}, []byte{0xc0})
}

// text encodes a text as a field.
func text(s string) []byte { return wire.Append(nil, func(w *wire.Writer) { w.Text(s) }) }

// grow adds elements to an encoded array. The first of them gets the index at.
func grow(array []byte, at int, elements ...[]byte) []byte {
	n, body := 0, []byte(nil)
	err := wire.Read(array, func(r *wire.Reader) {
		r.Fields(0, func() { n, body = r.Left(), r.Rest(MaxMessageBytes) })
	})
	if err != nil {
		panic(err)
	}
	return wire.Append(nil, func(w *wire.Writer) {
		w.Array(max(at, n) + len(elements))
		w.Raw(body)
		for ; n < at; n++ {
			w.Nil()
		}
		for _, e := range elements {
			w.Raw(e)
		}
	})
}

func TestLaterReleasesAreReadable(t *testing.T) {
	field := text("a later field")
	for name, m := range corpus() {
		got, err := Decode(later(m, field))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range got.Heartbeats {
			if !bytes.Equal(got.Heartbeats[i].rest, field) {
				t.Errorf("%s: row %d kept %q", name, i, got.Heartbeats[i].rest)
			}
			got.Heartbeats[i].rest = nil
		}
		for i, r := range got.Records {
			if !bytes.Equal(r.rest, field) {
				t.Errorf("%s: record %d kept %q", name, i, r.rest)
			}
			r.rest = nil
		}
		if diff := cmp.Diff(m, got, equalMessages); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUnknownFieldsAreBounded(t *testing.T) {
	for _, name := range []string{"leave", "challenge"} { // a row, a record
		for size, want := range map[int]error{maxRestBytes: nil, maxRestBytes + 1: ErrMalformed} {
			if _, err := Decode(later(corpus()[name], make([]byte, size))); !errors.Is(err, want) {
				t.Errorf("%s with %d unknown bytes: %v, want %v", name, size, err, want)
			}
		}
	}
}

func decode(tb testing.TB, wire []byte) *Message {
	tb.Helper()
	m, err := Decode(wire)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
