package firewall

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
)

// changeRing leaves exactly the wanted keys in the ring. Meanwhile, a reader never sees a broken key.
func TestChangeRing(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16+8*int(b%3)) }
	ring, err := memberlist.NewKeyring([][]byte{key(2), key(3)}, key(1))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			for _, k := range ring.GetKeys() { // as memberlist does for each packet
				if memberlist.ValidateKey(k) != nil || slices.ContainsFunc(k, func(b byte) bool { return b != k[0] }) {
					t.Error("a key is half another one")
				}
			}
		}
	})
	for i := range 500 {
		first := byte(1 + i%7)
		fewer := [][]byte{key(first), key(first%7 + 1), key(9)}[:1+i%3]
		more := append([][]byte{key(8)}, fewer...)
		for _, want := range [][][]byte{fewer, more} {
			if err := changeRing(ring, want); err != nil || !slices.EqualFunc(ring.GetKeys(), want, bytes.Equal) {
				t.Errorf("%v has become %v, %v", want, ring.GetKeys(), err)
			}
		}
	}
	close(over)
	reader.Wait()
}

// Between Widen and Narrow, a node decrypts messages with the previous and with the next keys.
func TestWidenAndNarrow(t *testing.T) {
	key := func(b byte) [][]byte { return [][]byte{bytes.Repeat([]byte{b}, 32)} }
	sealedBy := func(k [][]byte) []byte {
		nonce := make([]byte, lenVersion+sealNonce)
		nonce[0] = sealVersion
		return newOpeners(k)[0].Seal(nonce, nonce[lenVersion:], []byte("text"), nil)
	}
	plain := Keys{SendsPlain: true, TakesPlain: true}
	sealing := func(b byte) Keys { return Keys{Secrets: key(b)} }
	both := Keys{Secrets: key(1), TakesPlain: true}
	for name, tt := range map[string]struct {
		was, next   Keys
		wide, after string // the keys that decrypt; "p" = plain text is accepted
	}{
		"another key":      {sealing(1), sealing(2), "12", "2"},
		"the first key":    {plain, both, "1p", "1p"},
		"plain text ends":  {both, sealing(1), "1p", "1"},
		"plain text again": {sealing(1), both, "1p", "1p"},
	} {
		r, err := NewRing(tt.was)
		if err != nil {
			t.Fatal(err)
		}
		opens := func() (s string) {
			for _, b := range []byte("12") {
				if _, ok := r.accepts.Load().open(nil, sealedBy(key(b-'0')), nil); ok {
					s += string(b)
				}
			}
			if r.accepts.Load().TakesPlain {
				s += "p"
			}
			return s
		}
		if err := r.Widen(tt.next); err != nil || opens() != tt.wide {
			t.Errorf("%s: on the way %q opens, %v, want %q", name, opens(), err, tt.wide)
		}
		if ring := r.Keyring().GetKeys(); !slices.EqualFunc(ring, tt.next.Secrets, bytes.Equal) {
			t.Errorf("%s: memberlist has %v", name, ring)
		}
		if r.Narrow(tt.next); opens() != tt.after {
			t.Errorf("%s: afterwards %q opens, want %q", name, opens(), tt.after)
		}
	}
	if _, err := NewRing(Keys{Secrets: [][]byte{make([]byte, 17)}}); err == nil {
		t.Error("a key of 17 bytes is taken")
	}
}
