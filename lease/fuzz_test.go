package lease

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode: no input makes the decoder panic. A decoded message is valid, encodes
// again to an equal message, and does no harm to a set.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(&Message{SentAt: epoch}))
	f.Add(Encode(goldenMessage()))
	f.Add(Encode(hello(epoch, rec("b", 2), 1)))
	f.Add(Encode(messageFrom(epoch, rec("a", 1), []Beat{rec("a", 9).beat(1, 0).as(Left)}, rec("a", 9), rec("b", 2))))
	f.Add(Encode(farewell(epoch, rec("b", 1), 2)))
	f.Add(Encode(crowd(20).Sync(epoch)))
	for _, wire := range hostile() {
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
			if err := r.Validate(); err != nil {
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
		s.Apply(epoch, hello(epoch, rec("b", 1), 1))
		s.Apply(epoch, m)
		s.Expire(epoch.Add(testParams.TTL))
		if member(s, "a") == nil {
			t.Fatal("a message removed a node from its own view")
		}
		for _, own := range []*Message{s.Compose(epoch, 1400, 1), s.Sync(epoch)} {
			if own == nil {
				continue
			}
			if _, err := Decode(Encode(own)); err != nil {
				t.Fatalf("after that message, the node's own cannot be read: %v", err)
			}
		}
	})
}
