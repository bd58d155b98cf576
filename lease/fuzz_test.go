package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seeds returns messages of this program, of all releases and of a later release, and hostile messages.
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
	return append(all, Encode(&Message{Stamp: maxStamp, SentAt: time.UnixMilli(-1), Ages: make([]Bucket, 1)}))
}

// FuzzDecode checks that no input makes the decoder panic, and that a decoded message is valid and encodes to an equal
// message.
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
	})
}
