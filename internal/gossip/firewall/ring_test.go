package firewall

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
)

// A ring has just the wanted keys afterwards, and never a broken one while packets are read.
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
