package gossip

import (
	"bytes"
	"compress/lzw"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
)

func TestHarmless(t *testing.T) {
	compound := func(parts ...string) []byte {
		b := []byte{typeCompound, byte(len(parts))}
		for _, p := range parts {
			b = append(b, byte(len(p)>>8), byte(len(p)))
		}
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	user, ping, compressed := "\x08hello", "\x00ping", "\x09bomb"
	for _, c := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"user message", []byte(user), true},
		{"labeled user message", labeled(t, []byte(user)), true},
		{"compound", compound(user, ping), true},
		{"labeled, checksummed compound", labeled(t, append([]byte{typeChecksum, 1, 2, 3, 4}, compound(user, ping)...)), true},
		{"empty compound", compound(), true},
		{"nothing", nil, false},
		{"label alone", labeled(t, nil), false},
		{"compressed", []byte(compressed), false},
		{"checksummed, compressed", append([]byte{typeChecksum, 1, 2, 3, 4}, compressed...), false},
		{"compressed in compound", compound(user, compressed), false},
		{"compound in compound", compound(string(compound(user))), false},
		{"empty part", compound(user, ""), false},
		{"cut short", compound(user, ping)[:8], false},
		{"sizes cut short", []byte{typeCompound, 9, 0, 1}, false},
		{"count missing", []byte{typeCompound}, false},
		{"label cut short", []byte{244, 10, 'x'}, false},
	} {
		if got := harmless(c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// FuzzHarmless checks the guard's purpose: no packet that passes reaches a
// decompressor.
func FuzzHarmless(f *testing.F) {
	f.Add([]byte("\x08hello"))
	f.Add([]byte{typeCompound, 1, 0, 2, typeCompress, 1})
	f.Add([]byte{typeChecksum, 0, 0, 0, 0, typeCompress})
	f.Fuzz(func(t *testing.T, b []byte) {
		if harmless(b) && reaches(b, typeCompress, 0) {
			t.Errorf("%x passes", b)
		}
	})
}

// reaches unpacks like memberlist, by its documented format, and reports whether it
// would handle a message of the given type.
func reaches(b []byte, kind byte, depth int) bool {
	if depth == 0 {
		var err error
		if b, _, err = memberlist.RemoveLabelHeaderFromPacket(b); err != nil {
			return false
		}
		if len(b) >= 5 && b[0] == typeChecksum {
			b = b[5:]
		}
	}
	if len(b) == 0 {
		return false
	}
	if b[0] != typeCompound || len(b) < 2 || depth > 3 {
		return b[0] == kind
	}
	n, sizes := int(b[1]), b[2:]
	if len(sizes) < 2*n {
		return false
	}
	for body := sizes[2*n:]; n > 0; n, sizes = n-1, sizes[2:] {
		size := int(sizes[0])<<8 | int(sizes[1])
		if size > len(body) {
			return false
		}
		if reaches(body[:size], kind, depth+1) {
			return true
		}
		body = body[size:]
	}
	return false
}

// A real bomb: the guard counts it, and the node continues.
func TestCompressedPacketIsDropped(t *testing.T) {
	n, in := start(t, "a#1", nil)
	conn := dial(t, "udp", n)
	var lzwed bytes.Buffer
	w := lzw.NewWriter(&lzwed, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	write(t, conn, labeled(t, append([]byte{typeCompress}, lzwed.Bytes()...)))
	eventually(t, "the guard counts the packet", func() bool { return n.Dropped() == 1 })
	write(t, conn, labeled(t, []byte("\x08hello")))
	eventually(t, "the next packet arrives", func() bool { packets, _ := in.got(); return len(packets) == 1 })
}

// Keys are replaced while packets and streams are read and sent, and by several at once. In the end the ring
// has just the wanted keys.
func TestSetKeys(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16+8*int(b%3)) }
	ring, err := memberlist.NewKeyring([][]byte{key(2), key(3)}, key(1))
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{ring: ring}
	g.credentials.Store(newCredentials("", key(1), [][]byte{key(2), key(3)}))
	over := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			for _, k := range g.keys() { // as memberlist does for each packet
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
		if err := g.setKeys(want[0], want[1:]); err != nil || !slices.EqualFunc(g.keys(), want, bytes.Equal) {
			t.Errorf("%v has become %v, %v", want, g.keys(), err)
		}
	}
	if err := g.setKeys([]byte(PlainText), [][]byte{key(4)}); !errors.Is(err, ErrSealed) {
		t.Errorf("back to plain text: %v", err)
	}
	plain := &guard{ring: new(memberlist.Keyring)}
	plain.credentials.Store(newCredentials("", nil, nil))
	if err := plain.setKeys(key(1), nil); !errors.Is(err, ErrPlain) {
		t.Errorf("without keys: %v", err)
	}
}
