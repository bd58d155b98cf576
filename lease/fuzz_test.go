package lease

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seeds returns the messages of this program and of all releases, those of a later one, hostile ones, and
// messages of a set.
func seeds(f *testing.F) (all [][]byte) {
	f.Helper()
	for _, file := range corpusFiles(f) {
		all = append(all, readCorpus(f, file))
	}
	for _, m := range corpus() {
		all = append(all, later(m, text("a later field")))
	}
	for _, wire := range hostile() {
		all = append(all, wire)
	}
	s := crowd(20)
	for _, m := range append(s.Compose(epoch, 1400, 1), s.Sync(epoch), s.Challenge(epoch, 1)) {
		all = append(all, Encode(m))
	}
	return append(all, Encode(&Message{Stamp: maxStamp, SentAt: time.UnixMilli(-1), Ages: make([]Bucket, 1)}))
}

// FuzzDecode: no input makes the decoder panic. A decoded message is valid, encodes
// again to an equal message, and does no harm to a set.
func FuzzDecode(f *testing.F) {
	for _, wire := range seeds(f) {
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, err := Decode(wire)
		if err != nil {
			if m != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Fatalf("Decode = %v, %v", m, err)
			}
			return
		}
		for _, r := range m.Records {
			if err := r.validate(0); err != nil {
				t.Fatalf("decoded an invalid record: %v", err)
			}
		}
		again, err := Decode(Encode(m))
		if err != nil {
			t.Fatalf("the encoded form of a decoded message is unreadable: %v", err)
		}
		if diff := cmp.Diff(m, again, equalMessages); diff != "" {
			t.Fatalf("(-decoded +encoded and decoded):\n%s", diff)
		}
		m.Settings = testParams.Settings
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, rec("b", 1)))
		m.From = Incarnation{"b", 1}.Handle() // a live member: its time counts
		harmless(t, s, m, epoch.Add(testParams.TTL/2))
		near := newSet(rec("a", 1))
		near.time.base = m.Stamp
		harmless(t, near, m, epoch)
	})
}

// harmless applies m to s: s stays in its own view, and sends readable messages later.
func harmless(t *testing.T, s *Set, m *Message, later time.Time) {
	t.Helper()
	s.Apply(epoch, m)
	s.Heartbeat(later, 1, 1)
	own := append(s.Compose(later, 1400, 1), s.Sync(later), s.Challenge(later, 1), s.Echo(later, &Message{Challenge: 1}))
	own = append(own, s.answer(later, m, 1400)...)
	for _, own := range own {
		if got, err := Decode(Encode(own)); err != nil {
			t.Fatalf("after that message, the node's own cannot be read: %v", err)
		} else if !bytes.Equal(Encode(got), Encode(own)) {
			t.Fatal("the node's own message has two encodings")
		}
	}
	s.Expire(later.Add(testParams.TTL))
	if member(s, "a") == nil {
		t.Fatal("a message removed a node from its own view")
	}
}
