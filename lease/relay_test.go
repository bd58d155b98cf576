package lease_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// later returns m as a later release of the same version might write it, with an unknown field at the end of each row
// and each record. The positions of the fields are those in docs/dev/design/wire.md.
func later(tb testing.TB, m *lease.Message, field []byte) *lease.Message {
	tb.Helper()
	fields := elements(tb, lease.Encode(m))
	for at, known := range map[int]int{rowsAt: 7, recordsAt: 21} {
		if at >= len(fields) || bytes.Equal(fields[at], nothing) {
			continue
		}
		parts := elements(tb, fields[at])
		for i, part := range parts {
			all := elements(tb, part)
			for len(all) < known {
				all = append(all, nothing)
			}
			parts[i] = array(append(all, field))
		}
		fields[at] = array(parts)
	}
	grown, err := lease.Decode(array(fields))
	if err != nil {
		tb.Fatal(err)
	}
	return grown
}

// These are the positions of the rows and records in a message.
const (
	rowsAt    = 8
	recordsAt = 13
)

var nothing = []byte{0xc0} // nil

// elements returns the encoded elements of an encoded array.
func elements(tb testing.TB, b []byte) (all [][]byte) {
	tb.Helper()
	err := wire.Read(b, func(r *wire.Reader) {
		r.Fields(0, func() {
			for r.Left() > 0 {
				all = append(all, slices.Clone(r.Raw()))
			}
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// array returns an array of encoded elements.
func array(elements [][]byte) []byte {
	return wire.Append(nil, func(w *wire.Writer) {
		w.Array(len(elements))
		w.Raw(slices.Concat(elements...))
	})
}

// aField encodes a text as a field.
func aField(s string) []byte { return wire.Append(nil, func(w *wire.Writer) { w.Text(s) }) }

// partsWith counts the elements in the field of m with the index at whose encoding ends with field.
func partsWith(tb testing.TB, m *lease.Message, at int, field []byte) (count int) {
	tb.Helper()
	fields := elements(tb, lease.Encode(m))
	if at >= len(fields) || bytes.Equal(fields[at], nothing) {
		return 0
	}
	for _, part := range elements(tb, fields[at]) {
		if bytes.HasSuffix(part, field) {
			count++
		}
	}
	return count
}

// This program relays fields that it does not know in every kind of message.
func TestUnknownFieldsAreRelayed(t *testing.T) {
	b, c := rec("b", 1), rec("c", 1)
	field := aField("a later field")
	left := rec("left", 1)
	received := messageFrom(epoch, b, []lease.Heartbeat{sent(b, epoch), sent(c, epoch), as(sent(left, epoch), lease.Left)}, b, c, left)
	start := func() *lease.Set {
		s := newSet(rec("a", 1))
		s.Apply(epoch, later(t, received, field))
		wantIDs(t, s, "a/1", "b/1", "c/1")
		return s
	}
	ask := messageFrom(epoch, b, nil)
	ask.PullLeases, ask.PullBuckets, ask.PullRecords = []lease.Handle{c.Handle()}, []lease.BucketDigest{{}}, []lease.Handle{c.Handle()}
	for name, relayed := range map[string][]*lease.Message{
		"Compose":       start().Compose(epoch, 1400, 1),
		"Sync":          {start().Sync(epoch)},
		"Answer":        answer(start(), epoch, ask, 1400),
		"AnswerExpired": {relapsed(t, start(), b, field)},
	} {
		got := [2]int{}
		for _, m := range relayed {
			if m == nil {
				t.Fatalf("%s relays nothing", name)
			}
			got[0] += partsWith(t, m, rowsAt, field)
			got[1] += partsWith(t, m, recordsAt, field)
		}
		want := map[string][2]int{
			"Compose": {3, 2}, "Sync": {3, 3}, "Answer": {1 + 3 + 1, 3 + 1}, "AnswerExpired": {1, 0},
		}[name]
		if got != want {
			t.Errorf("%s relays %v rows and records with the unknown field, want %v", name, got, want)
		}
	}
}

// relapsed returns the answer of s to r after r's lease has expired. The lease of c is still valid, and the heartbeat
// of c has an unknown field.
func relapsed(t *testing.T, s *lease.Set, r *lease.Record, field []byte) *lease.Message {
	t.Helper()
	at, c := epoch.Add(testParams.TTL), rec("c", 1)
	s.Apply(at, later(t, messageFrom(at, c, []lease.Heartbeat{sent(c, at)}), field))
	at = at.Add(ms)
	s.Expire(at)
	_, m := answerExpired(s, at, r.Handle(), false)
	return m
}

// When a node of a later release sends a new row, the unknown fields in it replace those that the set has stored.
func TestUnknownFieldsAreReplaced(t *testing.T) {
	b := rec("b", 1)
	s := newSet(rec("a", 1))
	s.Apply(epoch, later(t, hello(epoch, b), aField("old")))
	for s.Compose(epoch, 1400, 100) != nil { // all news is sent
	}
	at := epoch.Add(100 * ms)
	s.Apply(at, later(t, messageFrom(at, b, []lease.Heartbeat{sent(b, at)}), aField("new")))
	if partsWith(t, composeOne(s, at, 1), rowsAt, aField("new")) != 1 {
		t.Error("the new value of an unknown field is not relayed as news")
	}
}

// The first messages of a node are readable, whatever its clock shows.
func TestEveryClockStarts(t *testing.T) {
	for _, clock := range []time.Time{
		{}, time.UnixMilli(-1), time.UnixMilli(0), time.UnixMilli(1), epoch, time.UnixMilli(lease.MaxStart), time.UnixMilli(math.MaxInt64),
	} {
		s := lease.NewSet(clock, *rec("a", 1), testParams)
		for _, m := range append(s.Compose(clock, 1400, 1), s.Sync(clock), s.Challenge(clock, 1), s.Echo(clock, &lease.Message{Challenge: 1})) {
			if _, err := lease.Decode(lease.Encode(m)); err != nil {
				t.Errorf("at %v: %v", clock, err)
			}
		}
	}
}

// No decoded message harms a set, whatever the set's cluster time is.
func FuzzApply(f *testing.F) {
	s := crowd(20)
	for _, m := range append(s.Compose(epoch, 1400, 1), s.Sync(epoch), s.Challenge(epoch, 1), later(f, s.Sync(epoch), aField("later"))) {
		f.Add(lease.Encode(m))
	}
	ask := asksBack(s, epoch, rec("node-0001", 1))
	ask.PullLeases, ask.PullRecords, ask.PullCordons = s.Handles(), s.Handles(), true
	ask.FailureReports = []lease.FailureReport{{Subject: s.Handle(), Watcher: ask.From, At: ask.Stamp, Evidence: lease.Silent}}
	f.Add(lease.Encode(ask))
	f.Add(lease.Encode(&lease.Message{Stamp: lease.MaxStamp, SentAt: time.UnixMilli(-1), Ages: make([]lease.Bucket, 1)}))
	files, err := filepath.Glob(filepath.Join("testdata", "wire", "*", "*.hex"))
	if err != nil || len(files) == 0 {
		f.Fatal("no messages in testdata", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		wire, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			f.Fatal(file, err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, err := lease.Decode(wire)
		if err != nil {
			return
		}
		m.Settings, m.From = testParams.Settings, rec("b", 1).Handle() // from a live member, so its time counts
		harmless(t, epoch, m, epoch.Add(testParams.TTL/2))
		near := time.UnixMilli(int64(m.Stamp))
		harmless(t, near, m, near)
	})
}

// harmless applies m to a set. Afterwards, the set must stay in its own view, and must send readable messages.
func harmless(t *testing.T, now time.Time, m *lease.Message, later time.Time) {
	t.Helper()
	s := startSet(now, rec("a", 1), testParams)
	s.Apply(now, hello(now, rec("b", 1)))
	s.Apply(now, m)
	s.Heartbeat(later, 1, 1)
	own := append(s.Compose(later, 1400, 1), s.Sync(later), s.Challenge(later, 1), s.Echo(later, &lease.Message{Challenge: 1}))
	own = append(own, answer(s, later, m, 1400)...)
	for _, own := range own {
		if got, err := lease.Decode(lease.Encode(own)); err != nil {
			t.Fatalf("after that message, the node's own cannot be read: %v", err)
		} else if !bytes.Equal(lease.Encode(got), lease.Encode(own)) {
			t.Fatal("the node's own message has two encodings")
		}
	}
	s.Expire(later.Add(testParams.TTL))
	if member(s, "a") == nil {
		t.Fatal("a message removed a node from its own view")
	}
}
