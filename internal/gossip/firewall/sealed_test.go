package firewall_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"log"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// tally is a transport with real sockets that records what is sent.
type tally struct {
	*firewall.Sockets
	streams chan net.Conn
	mu      sync.Mutex
	packets int
	out     []*written
}

// written is a stream that records what is written to it.
type written struct {
	net.Conn
	of    *tally
	bytes bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.of.mu.Lock()
	w.bytes.Write(p)
	w.of.mu.Unlock()
	return w.Conn.Write(p)
}

func newTally(t *testing.T) *tally {
	t.Helper()
	s, err := firewall.Listen(netip.MustParseAddrPort("127.0.0.1:0"), nil, nil, log.New(t.Output(), "", 0))
	if err != nil {
		t.Fatal(err)
	}
	y := &tally{Sockets: s, streams: make(chan net.Conn)}
	go func() {
		for {
			select {
			case conn := <-s.StreamCh():
				y.streams <- y.keep(conn)
			case <-t.Context().Done():
				return
			}
		}
	}()
	return y
}

func (y *tally) keep(conn net.Conn) net.Conn {
	w := &written{Conn: conn, of: y}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.out = append(y.out, w)
	return w
}

func (y *tally) StreamCh() <-chan net.Conn { return y.streams }

func (y *tally) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	y.mu.Lock()
	y.packets++
	y.mu.Unlock()
	return y.Sockets.WriteToAddress(b, to)
}

func (y *tally) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := y.Sockets.DialAddressTimeout(to, timeout)
	if err != nil {
		return nil, err
	}
	return y.keep(conn), nil
}

// sealed returns the number of packets that were sent, and the number of encrypted messages in streams.
func (y *tally) sealed(t *testing.T) (packets, messages int) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, w := range y.out {
		b := bytes.TrimPrefix(w.bytes.Bytes(), []byte(label))
		for len(b) >= 5 && b[0] == 10 {
			messages++
			b = b[min(len(b), 5+int(binary.BigEndian.Uint32(b[1:]))):]
		}
		if len(b) > 0 {
			t.Errorf("a stream has %d other bytes, from %d on", len(b), b[0])
		}
	}
	return y.packets, messages
}

func hexOf(key []byte) string {
	f := firewall.Fingerprint(key)
	return hex.EncodeToString(f[:])
}

// change replaces the keys of a node.
func (m *member) change(t *testing.T, secrets ...[]byte) {
	t.Helper()
	if err := m.ring.Widen(keys(secrets...)); err != nil {
		t.Fatal(err)
	}
	m.ring.Narrow(keys(secrets...))
}

// The sum of the counts of all keys is the number of messages that were sent through real sockets. A new key starts at
// zero, and a key that is used again continues its count.
func TestSealed(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	y := newTally(t)
	other := start(t, "b#1", keys(one, two), nil)
	m := &member{rejections: firewall.NewRejections(nil), state: make([]byte, 200<<10)} // takes several writes
	m.over(t, y, "a#1", keys(one, two), nil)
	if err := m.join(other.addr()); err != nil {
		t.Fatal(err)
	}
	if err := other.join(m.addr()); err != nil {
		t.Fatal(err)
	}
	send := func() {
		for range 100 {
			if err := m.send(other, "packet"); err != nil {
				t.Fatal(err)
			}
		}
	}
	send()
	f, first := m.ring.Sealed()
	if _, streams := y.sealed(t); f != hexOf(one) || first < 102 || streams < 2 {
		t.Errorf("%d messages are sealed with %s, %d of them in streams", first, f, streams)
	}
	m.change(t, two, one)
	if f, count := m.ring.Sealed(); f != hexOf(two) || count >= 100 {
		t.Errorf("with a new key: %d with %s", count, f)
	}
	send()
	m.change(t, one, two)
	if f, count := m.ring.Sealed(); f != hexOf(one) || count < first {
		t.Errorf("with the first key again: %d with %s, it was %d", count, f, first)
	}
	_ = m.Shutdown()
	eventually(t, "the counts are what went out", func() bool {
		packets, messages := y.sealed(t)
		total := uint64(0)
		for range 2 {
			_, count := m.ring.Sealed()
			total += count
			m.change(t, two, one)
		}
		m.change(t, one, two)
		return total == uint64(packets+messages)
	})
	plain := start(t, "c#1", keys(), nil)
	if err := plain.send(other, "packet"); err != nil {
		t.Fatal(err)
	}
	if f, count := plain.ring.Sealed(); f != "" || count != 0 {
		t.Errorf("without a key: %d with %q", count, f)
	}
}
