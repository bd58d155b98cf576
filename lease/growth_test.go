package lease

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/internal/wire"
)

// later returns how a later release of the same version might write m: with unknown fields at its end, and at the
// ends of each row and each record.
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

// text returns a text as a field.
func text(s string) []byte { return wire.Append(nil, func(w *wire.Writer) { w.Text(s) }) }

// grow returns an encoded array with further elements, which begin at a place.
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

// Fields that this program does not know pass through it, by every way of relaying.
func TestUnknownFieldsAreRelayed(t *testing.T) {
	b, c := rec("b", 1), rec("c", 1)
	field := text("a later field")
	left := rec("left", 1)
	received := messageFrom(epoch, b, []Heartbeat{b.sent(epoch), c.sent(epoch), left.sent(epoch).as(Left)}, b, c, left)
	start := func() *Set {
		s := newSet(rec("a", 1))
		s.Apply(epoch, decode(t, later(received, field)))
		wantIDs(t, s, "a/1", "b/1", "c/1")
		return s
	}
	ask := messageFrom(epoch, b, nil)
	ask.PullLeases, ask.PullBuckets, ask.PullRecords = []Handle{c.Handle()}, []BucketDigest{{}}, []Handle{c.Handle()}
	for name, relayed := range map[string][]*Message{
		"Compose":       start().Compose(epoch, 1400, 1),
		"Sync":          {start().Sync(epoch)},
		"Answer":        start().answer(epoch, ask, 1400),
		"AnswerExpired": {relapsed(start(), b)},
	} {
		rows, records := 0, 0
		for _, m := range relayed {
			if m == nil {
				t.Fatalf("%s relays nothing", name)
			}
			m = carry(t, m)
			for _, b := range m.Heartbeats {
				if b.Handle != (Incarnation{"a", 1}).Handle() && bytes.Equal(b.rest, field) {
					rows++
				}
			}
			for _, r := range m.Records {
				if r.ID != "a" && bytes.Equal(r.rest, field) {
					records++
				}
			}
		}
		want := map[string][2]int{
			"Compose": {3, 2}, "Sync": {3, 3}, "Answer": {1 + 3 + 1, 3 + 1}, "AnswerExpired": {1, 0},
		}[name]
		if got := [2]int{rows, records}; got != want {
			t.Errorf("%s relays %v rows and records with the unknown field, want %v", name, got, want)
		}
	}
}

// relapsed returns the answer of s to r after r's lease expired; that of c holds.
func relapsed(s *Set, r *Record) *Message {
	at := epoch.Add(testParams.TTL)
	c := rec("c", 1)
	b := c.sent(at)
	b.rest = text("a later field")
	s.Apply(at, messageFrom(at, c, []Heartbeat{b}))
	at = at.Add(ms)
	s.Expire(at)
	_, m := s.answerExpired(at, r.Handle(), false, 1400)
	return m
}

// A row of a later release replaces the unknown fields that the set has.
func TestUnknownFieldsAreReplaced(t *testing.T) {
	b := rec("b", 1)
	s := newSet(rec("a", 1))
	s.Apply(epoch, decode(t, later(hello(epoch, b), text("old"))))
	for s.Compose(epoch, 1400, 100) != nil { // all news is sent
	}
	at := epoch.Add(100 * ms)
	s.Apply(at, decode(t, later(messageFrom(at, b, []Heartbeat{b.sent(at)}), text("new"))))
	for _, m := range s.Compose(at, 1400, 1) {
		for _, row := range m.Heartbeats {
			if row.Handle == b.Handle() && bytes.Equal(row.rest, text("new")) {
				return
			}
		}
	}
	t.Error("the new value of an unknown field is not relayed as news")
}

func decode(tb testing.TB, wire []byte) *Message {
	tb.Helper()
	m, err := Decode(wire)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
