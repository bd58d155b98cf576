package gossip

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// Two goroutines replace the keys while another goroutine reads them. In the end, the ring contains exactly the keys
// that were set last.
func TestSetKeys(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16+8*int(b%3)) }
	greeterWith := func(key []byte, old ...[]byte) *greeter {
		creds := newCredentials("", key, old)
		ring, err := firewall.NewRing(creds.Keys)
		if err != nil {
			t.Fatal(err)
		}
		return newGreeter(new(Config), creds, ring)
	}
	g := greeterWith(key(1), key(2), key(3))
	kept := func() [][]byte { return g.ring.Keyring().GetKeys() }
	over := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			for _, k := range kept() { // as memberlist does for each packet
				if memberlist.ValidateKey(k) != nil || slices.ContainsFunc(k, func(b byte) bool { return b != k[0] }) {
					t.Error("a key is half another one")
				}
			}
		}
	})
	for w := range 2 {
		writers.Go(func() {
			for i := range 500 {
				first := byte(1 + (i+w)%7)
				if err := g.setKeys(key(first), [][]byte{key(first%7 + 1), key(9)}[:1+i%2]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(over)
	readers.Wait()
	for _, want := range [][][]byte{{key(4), key(5), key(6)}, {key(5), key(4)}, {key(5)}, {key(8), key(5)}, {key(4)}} {
		if err := g.setKeys(want[0], want[1:]); err != nil || !slices.EqualFunc(kept(), want, bytes.Equal) {
			t.Errorf("%v has become %v, %v", want, kept(), err)
		}
	}
	if err := g.setKeys([]byte(PlainText), [][]byte{key(4)}); !errors.Is(err, ErrSealed) {
		t.Errorf("back to plain text: %v", err)
	}
	if err := greeterWith(nil).setKeys(key(1), nil); !errors.Is(err, ErrPlain) {
		t.Errorf("without keys: %v", err)
	}
}
