package firewall_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// pipes is a transport whose streams the test opens.
type pipes struct {
	memberlist.NodeAwareTransport
	streams chan net.Conn
}

func (p *pipes) PacketCh() <-chan *memberlist.Packet { return nil }
func (p *pipes) StreamCh() <-chan net.Conn           { return p.streams }
func (p *pipes) Shutdown() error                     { return nil }

// passed returns the data that memberlist gets from a stream, or false if memberlist does not get the stream.
func passed(t *testing.T, k firewall.Keys, b []byte) ([]byte, bool) {
	t.Helper()
	ring, err := firewall.NewRing(k)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipes{streams: make(chan net.Conn)}
	f := firewall.New(p, configOf(ring, firewall.NewRejections(nil)))
	defer func() { _ = f.Shutdown() }()
	near, far := net.Pipe()
	p.streams <- far
	ended := make(chan struct{})
	go func() {
		_, _ = near.Write(b)
		_, _ = io.Copy(io.Discard, near)
		close(ended)
	}()
	defer near.Close()
	select {
	case conn := <-f.StreamCh():
		defer conn.Close()
		got, _ := io.ReadAll(conn)
		return got, true
	case <-ended:
		return nil, false
	}
}

// sealedBy returns an exchange that memberlist encrypted with a key.
func sealedBy(t *testing.T, key []byte, size int) []byte {
	t.Helper()
	l := listener(t)
	m := start(t, "a#1", keys(key), nil)
	m.holds(size)
	go func() { _ = m.join(l.Addr().String()) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, len(label)+5)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(b[len(b)-4:]))
	if _, err := io.ReadFull(conn, rest); err != nil {
		t.Fatal(err)
	}
	return append(b, rest...)
}

// A message that no key decrypts does not reach memberlist, which gets a short invalid message instead.
func TestSealedMessage(t *testing.T) {
	message := sealedBy(t, theKey(), 100_000)
	wrong := func(change func(b []byte)) []byte {
		b := bytes.Clone(message)
		change(b)
		return b
	}
	begin := len(label)
	head := func(content string) string {
		return string(binary.BigEndian.AppendUint32([]byte("\x0a"), uint32(sealed+len(content))))
	}
	padding := strings.Repeat("x", 15) + "\xff" // the last byte claims 255 bytes of padding
	for name, tt := range map[string]struct {
		b     []byte
		whole bool
	}{
		"by the key":     {message, true},
		"by another key": {sealedBy(t, bytes.Repeat([]byte{8}, 32), 100_000), false},
		"first byte":     {wrong(func(b []byte) { b[begin+5+13] ^= 1 }), false},
		"last byte":      {wrong(func(b []byte) { b[len(b)-1] ^= 1 }), false},
		"version":        {wrong(func(b []byte) { b[begin+5]++ }), false},
		"one byte":       {[]byte(label + "\x0a\x00\x00\x00\x01\x01"), false},
		"nothing":        {[]byte(label + "\x0a\x00\x00\x00\x00"), false},
		"padded":         {[]byte(label + head(padding) + seal(t, 0, padding, head(padding)+"test")), false},
	} {
		got, ok := passed(t, keys(theKey()), tt.b)
		if !ok {
			t.Errorf("%s: memberlist gets no stream", name)
			continue
		}
		if tt.whole != bytes.Equal(got, tt.b) || !tt.whole && len(got) != begin+5+sealed {
			t.Errorf("%s: %d of %d bytes", name, len(got), len(tt.b))
		}
		if got[begin] != 10 || int(binary.BigEndian.Uint32(got[begin+1:])) != len(got)-begin-5 {
			t.Errorf("%s: memberlist would wait for more than %x", name, got[:begin+5])
		}
	}
	if _, ok := passed(t, keys(theKey()), []byte(label+"\x0a\x01\x40\x00\x00")); ok {
		t.Error("20 MiB are passed on")
	}
	for _, b := range []string{"\xf4\x05other\x0a\x01\x40\x00\x00", label + "\x00", label + "\x06\x83"} {
		if got, ok := passed(t, keys(theKey()), []byte(b)); !ok || len(got) > 7 || !strings.HasPrefix(b, string(got)) {
			t.Errorf("%q, which memberlist refuses by its head: %q, %v", b, got, ok)
		}
	}
}
