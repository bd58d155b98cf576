package gossip

import (
	"bytes"
	"compress/lzw"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// A real bomb: the guard counts it, and the node continues.
func TestCompressedPacketIsDropped(t *testing.T) {
	n, in := start(t, "a#1", nil)
	conn := dial(t, "udp", n)
	var lzwed bytes.Buffer
	w := lzw.NewWriter(&lzwed, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	write(t, conn, labeled(t, append([]byte{9}, lzwed.Bytes()...)))
	eventually(t, "the guard counts the packet", func() bool { return n.Dropped() == 1 })
	write(t, conn, labeled(t, []byte("\x08hello")))
	eventually(t, "the next packet arrives", func() bool { packets, _ := in.got(); return len(packets) == 1 })
}

// Keys are replaced while packets and streams are read and sent, and by several at once. In the end the ring
// has just the wanted keys.
func TestSetKeys(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16+8*int(b%3)) }
	guardWith := func(key []byte, old ...[]byte) *guard {
		g := new(guard)
		g.credentials.Store(newCredentials("", key, old))
		ring, err := firewall.NewRing(g.credentials.Load().Keys)
		if err != nil {
			t.Fatal(err)
		}
		g.ring = ring
		return g
	}
	g := guardWith(key(1), key(2), key(3))
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
	if err := guardWith(nil).setKeys(key(1), nil); !errors.Is(err, ErrPlain) {
		t.Errorf("without keys: %v", err)
	}
}
