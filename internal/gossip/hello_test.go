package gossip

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// greet answers a hello like a node of the cluster "test".
func greet(t *testing.T, conn net.Conn, key []byte) {
	t.Helper()
	c := newCredentials("test", key, nil)
	if _, err := io.ReadFull(conn, make([]byte, len(c.head(typeHello)))); err != nil {
		t.Error(err)
	}
	var said hello
	if err := readFrame(conn, 1, firewall.ErrHead, said.read); err != nil {
		t.Error(err)
	}
	write(t, conn, c.appendPeer([]byte{welcome}, Peer{Node: 9}, said.number))
}

// A caller with another cluster name or key only learns why it is rejected.
func TestHelloOfOutsiders(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	n, _ := start(t, "a#1", func(c *Config) {
		c.Key, c.Self = key, func() Peer { return Peer{7, lease.ClusterID{3}} }
	})
	answer := func(creds *credentials) []byte {
		conn := dial(t, "tcp", n)
		write(t, conn, creds.hello(make([]byte, numberSize)))
		b, _ := io.ReadAll(io.LimitReader(conn, 1000))
		return b
	}
	for name, tt := range map[string]struct {
		creds *credentials
		want  byte
		why   Why
	}{
		"other name": {newCredentials("prod", key, nil), otherName, WrongCluster},
		"no name":    {newCredentials("", key, nil), otherName, WrongCluster},
		"no key":     {newCredentials("test", nil, nil), needsKey, WrongKey},
		"other key":  {newCredentials("test", bytes.Repeat([]byte{8}, 32), nil), otherKey, WrongKey},
	} {
		before := n.Rejected(tt.why)
		if got := answer(tt.creds); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: answer % x, want %d alone", name, got, tt.want)
		}
		eventually(t, name+" is counted", func() bool { return n.Rejected(tt.why) > before })
	}
}

// A caller rejects an answer that was recorded, that was changed, or that names too many founders.
func TestForgedPeers(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	c := newCredentials("test", key, nil)
	number := make([]byte, numberSize)
	good := c.appendPeer(nil, Peer{7, lease.ClusterID{3}}, number)
	p, err := c.readPeer(bytes.NewReader(good), number)
	if err != nil || p.Node != 7 || len(p.Cluster) != 1 || p.Cluster[0] != 3 {
		t.Fatalf("%v, %v", p, err)
	}
	other := bytes.Repeat([]byte{1}, numberSize)
	if _, err := c.readPeer(bytes.NewReader(good), other); !errors.Is(err, ErrKey) {
		t.Errorf("recorded: %v", err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i]++
		if p, err := c.readPeer(bytes.NewReader(bad), number); err == nil {
			t.Errorf("byte %d changed: %v", i, p)
		}
		if p, err := c.readPeer(bytes.NewReader(good[:i]), number); err == nil {
			t.Errorf("cut at byte %d: %v", i, p)
		}
	}
	many := c.appendPeer(nil, Peer{7, make(lease.ClusterID, lease.MaxFounders+1)}, number)
	if _, err := c.readPeer(bytes.NewReader(many), number); !errors.Is(err, ErrNoNode) {
		t.Errorf("many founders: %v", err)
	}
}

// A later release may append fields to a hello. If the version of the hello is different, everything after the version
// may be different, too.
func TestHelloOfLaterReleases(t *testing.T) {
	n, _ := start(t, "a#1", func(c *Config) { c.Self = func() Peer { return Peer{7, lease.ClusterID{3}} } })
	c, number := newCredentials("test", nil, nil), make([]byte, numberSize)
	for name, tt := range map[string]struct {
		n    int
		says func(w *wire.Writer)
		want byte
	}{
		"more fields": {6, func(w *wire.Writer) {
			w.Uint(helloVersion)
			w.Bool(false)
			w.Bytes(number)
			w.Bytes(c.mac(c.keys[0], roleCaller, number))
			w.Text("a later field")
			w.Nil()
		}, welcome},
		"another version": {2, func(w *wire.Writer) {
			w.Uint(helloVersion + 1)
			w.Map(0)
		}, otherHello},
	} {
		conn := dial(t, "tcp", n)
		write(t, conn, appendFrame(c.head(typeHello), tt.n, tt.says))
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != tt.want {
			t.Errorf("%s: %d, %v", name, b[0], err)
		}
	}
}

// A hello from an unauthenticated peer costs a node at most a few kilobytes of memory, no matter which lengths the
// hello claims.
func TestHostileHellos(t *testing.T) {
	c := newCredentials("test", nil, nil)
	good := c.hello(make([]byte, numberSize))[len(c.head(typeHello)):]
	if err := readFrame(bytes.NewReader(good), 1, firewall.ErrHead, new(hello).read); err != nil || good[0] != typeFrame {
		t.Fatalf("% x: %v", good, err)
	}
	frame := func(array ...byte) []byte { return append([]byte{typeFrame, byte(len(array))}, array...) }
	for name, b := range map[string][]byte{
		"no frame":               {0x94, 1, 0xc2},
		"an empty frame":         frame(),
		"a text":                 frame(0xa1, 'x'),
		"an empty array":         frame(0x90),
		"a version alone":        frame(0x91, 1),
		"version -1":             frame(0x91, 0xff),
		"version nil":            frame(0x91, 0xc0),
		"an array of 2^32-1":     frame(0xdd, 0xff, 0xff, 0xff, 0xff, 1),
		"a number of 4 GiB":      frame(0x94, 1, 0xc2, 0xc6, 0xff, 0xff, 0xff, 0xff),
		"a short number":         frame(0x94, 1, 0xc2, 0xc4, 1, 0, 0xc4, 0),
		"a key that is a number": append([]byte{typeFrame, good[1], 0x94, 1, 1}, good[5:]...),
		"nested arrays":          frame(bytes.Repeat([]byte{0x91}, 255)...),
		"nested later fields":    frame(append([]byte{0x92, helloVersion + 1}, bytes.Repeat([]byte{0x91}, 253)...)...),
		"two values":             append([]byte{typeFrame, good[1] + 1}, append(bytes.Clone(good[2:]), 0)...),
	} {
		var err error
		least := uint64(math.MaxUint64)
		for range 3 { // the garbage collector may have freed memory that is kept for reuse
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = readFrame(bytes.NewReader(b), 1, firewall.ErrHead, new(hello).read)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if !errors.Is(err, firewall.ErrHead) || least > 4<<10 {
			t.Errorf("%s: %v, %d bytes allocated", name, err, least)
		}
	}
}

// An independent decoder finds the fields of a hello where the documentation of the wire format says.
func TestAnotherDecoderReadsHellos(t *testing.T) {
	c, number := newCredentials("", bytes.Repeat([]byte{7}, 32), nil), make([]byte, numberSize)
	read := func(frame []byte) (v []any) {
		if err := codec.NewDecoderBytes(frame[2:], &codec.MsgpackHandle{}).Decode(&v); err != nil {
			t.Error(err)
		}
		return v
	}
	said := read(c.hello(number)[1:])
	if want := []any{int64(1), true, number, c.mac(c.keys[0], roleCaller, number)}; !reflect.DeepEqual(said, want) {
		t.Errorf("a hello has %v, want %v", said, want)
	}
	answer := read(c.appendPeer(nil, Peer{0x010203040506, lease.ClusterID{1, 2}}, number))
	if len(answer) != 2 || !hmac.Equal(answer[1].([]byte), c.mac(c.keys[0], roleCallee, number, answer[0].([]byte))) {
		t.Fatalf("an answer has %v", answer)
	}
	peer := read(append([]byte{0, 0}, answer[0].([]byte)...))
	if want := []any{[]byte{1, 2, 3, 4, 5, 6}, []any{[]byte{0, 0, 0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 2}}}; !reflect.DeepEqual(peer, want) {
		t.Errorf("a peer has %v, want %v", peer, want)
	}
}

// FuzzHello sends arbitrary bytes to both sides of a hello. The caller must not accept them as an answer, and neither
// side may read more than a frame.
func FuzzHello(f *testing.F) {
	c, number := newCredentials("test", bytes.Repeat([]byte{1}, 16), nil), make([]byte, numberSize)
	f.Add(c.hello(number)[len(c.head(typeHello)):])
	f.Add(c.appendPeer(nil, Peer{7, lease.ClusterID{3}}, bytes.Repeat([]byte{1}, numberSize)))
	f.Add([]byte{typeFrame, 5, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &counted{Reader: bytes.NewReader(b)}
		var said hello
		err := readFrame(r, 1, firewall.ErrHead, said.read)
		if r.n > 2+maxFrame || err == nil && said.version == helloVersion && (len(said.number) != numberSize || len(said.proof) != sha256.Size) {
			t.Errorf("%+v, %v after %d bytes", said, err, r.n)
		}
		r = &counted{Reader: bytes.NewReader(b)}
		if p, err := c.readPeer(r, number); err == nil || r.n > 2+maxFrame {
			t.Errorf("%+v, %v after %d bytes", p, err, r.n)
		}
	})
}

// A caller that is silent after its hello does not keep its slot for longer than a caller that sends nothing at all.
func TestSilentAfterHello(t *testing.T) {
	n, _ := start(t, "a#1", func(c *Config) {
		c.StreamTimeout, c.Self = time.Minute, func() Peer { return Peer{7, lease.ClusterID{3}} }
	})
	conn := dial(t, "tcp", n)
	write(t, conn, newCredentials("test", nil, nil).hello(make([]byte, numberSize)))
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if b, err := io.ReadAll(conn); err != nil || len(b) < 2 || b[0] != welcome || b[len(b)-1] != firewall.Busy {
		t.Errorf("it gets %v (%v), want a welcome and the end", b, err)
	}
}
