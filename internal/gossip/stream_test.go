package gossip

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// field is a msgpack key and its value.
type field struct {
	key   string
	value any
}

// pushPull returns the head of a full exchange, with keys in the given order.
func pushPull(tb testing.TB, fields ...field) []byte {
	tb.Helper()
	var b bytes.Buffer
	b.WriteByte(typePushPull)
	b.WriteByte(0x80 | byte(len(fields))) // a map
	e := codec.NewEncoder(&b, new(codec.MsgpackHandle))
	for _, f := range fields {
		if err := errors.Join(e.Encode(f.key), e.Encode(f.value)); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestReadHead(t *testing.T) {
	nodes := func(n any) field { return field{"Nodes", n} }
	state := func(n any) field { return field{"UserStateLen", n} }
	join := field{"Join", true}
	label := "\xf4\x04test"
	for _, c := range []struct {
		name string
		head []byte
		want error
	}{
		{"ping", []byte("\x00rest"), nil},
		{"labeled ping", []byte(label + "\x00rest"), nil},
		{"ack", []byte("\x02"), nil},
		{"encrypted", []byte("\x0a"), nil},
		{"error", []byte("\x0d"), nil},
		{"user message", []byte("\x08"), errHead},
		{"labeled user message", []byte(label + "\x08"), errHead},
		{"compressed", []byte(label + "\x09"), errHead},
		{"two labels", []byte(label + label + "\x00"), errHead},
		{"exchange", pushPull(t, nodes(1), state(10), join), nil},
		{"labeled exchange", append([]byte(label), pushPull(t, nodes(1), state(10), join)...), nil},
		{"longest label", append(append([]byte{typeLabel, 255}, make([]byte, 255)...), pushPull(t, nodes(1), state(1), join)...), nil},
		{"other order", pushPull(t, join, state(10), nodes(1)), nil},
		{"keys missing", pushPull(t, nodes(1)), nil},
		{"both limits", pushPull(t, nodes(2*lease.MaxNodes), state(lease.MaxMessageBytes), join), nil},
		{"signed integers", pushPull(t, nodes(int32(2*lease.MaxNodes)), state(int64(lease.MaxMessageBytes)), join), nil},
		{"too many nodes", pushPull(t, nodes(2*lease.MaxNodes+1), state(0), join), errHead},
		{"a million nodes", pushPull(t, nodes(1<<20), state(0), join), errHead},
		{"a million nodes, 64 bits", pushPull(t, nodes(uint64(1<<20)), state(0), join), errHead},
		{"too many nodes at last", pushPull(t, nodes(1), state(0), nodes(1<<20)), errHead},
		{"negative", pushPull(t, nodes(int64(-1)), state(0), join), errHead},
		{"large state", pushPull(t, nodes(1), state(lease.MaxMessageBytes+1), join), errHead},
		{"float", pushPull(t, nodes(float64(1<<20)), state(0), join), errHead},
		{"no boolean", pushPull(t, nodes(1), field{"Join", 1}), errHead},
		{"unknown key", pushPull(t, field{"nodes", 1}), errHead},
		{"long key", pushPull(t, field{strings.Repeat("x", 40), 1}), errHead},
		{"four keys", pushPull(t, nodes(1), state(0), join, join), errHead},
		{"array", []byte{typePushPull, 0x93, 0xce, 0, 16, 0, 0, 0, 0xc3}, errHead},
		{"nothing", nil, io.EOF},
		{"label cut short", []byte(label[:3]), io.EOF},
		{"label alone", []byte(label), io.EOF},
		{"exchange cut short", pushPull(t, nodes(1), state(1<<16))[:25], io.EOF},
	} {
		err := readHead(bufio.NewReaderSize(bytes.NewReader(c.head), maxHead), "test", firewall.Keys{SendsPlain: true, TakesPlain: true}).err
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// FuzzReadHead compares readHead with a full decoder: a head that passes is within
// bounds.
func FuzzReadHead(f *testing.F) {
	f.Add(pushPull(f, field{"Nodes", 1}, field{"UserStateLen", 10}, field{"Join", true}))
	f.Add(pushPull(f, field{"Nodes", int16(5000)}, field{"UserStateLen", uint32(math.MaxUint32)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != typePushPull ||
			readHead(bufio.NewReaderSize(bytes.NewReader(b), maxHead), "", firewall.Keys{SendsPlain: true, TakesPlain: true}).err != nil {
			return
		}
		var h struct{ Nodes, UserStateLen int64 }
		if err := codec.NewDecoderBytes(b[1:], new(codec.MsgpackHandle)).Decode(&h); err != nil {
			t.Fatalf("%x passes and cannot be read: %v", b, err)
		}
		if h.Nodes > 2*lease.MaxNodes || h.UserStateLen > lease.MaxMessageBytes {
			t.Errorf("%x passes: %+v", b, h)
		}
	})
}

// dial opens a connection that the end of the test closes.
func dial(t *testing.T, network string, n *Node) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// labeled returns a packet of the cluster "test".
func labeled(t *testing.T, b []byte) []byte {
	t.Helper()
	out, err := memberlist.AddLabelHeaderToPacket(b, "test")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An announced million of nodes would cost 109 MB in memberlist.
func TestExcessiveHeadsAreRejected(t *testing.T) {
	n, _ := start(t, "a#1", nil)
	head := pushPull(t, field{"Nodes", 1 << 20}, field{"UserStateLen", 0}, field{"Join", false})
	conn := dial(t, "tcp", n)
	write(t, conn, append([]byte("\xf4\x04test"), head...))
	eventually(t, "the guard counts the stream", func() bool { return n.Dropped() == 1 })
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
	if got := n.Dropped(); got != 1 {
		t.Errorf("one stream was counted %d times", got)
	}
}

// The answer to an outgoing connection is vetted, too.
func TestPromisesInAnswers(t *testing.T) {
	l := listener(t)
	head := pushPull(t, field{"Nodes", 1 << 20}, field{"UserStateLen", 0}, field{"Join", false})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		greet(t, conn, nil)
		_, _ = conn.Write(head)
		_, _ = io.Copy(io.Discard, conn)
	}()
	n, _ := start(t, "a#1", nil)
	if err := n.Join(l.Addr().String(), nil); err == nil || !strings.Contains(err.Error(), errHead.Error()) {
		t.Errorf("error %v, want %v", err, errHead)
	}
}

// Silent connections must not block packets, nor joins until StreamTimeout, nor Close.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withTimeout := func(c *Config) { c.Key, c.StreamTimeout = key, 6*time.Second }
			a, in := start(t, "a#1", withTimeout)
			b, _ := start(t, "b#1", withTimeout)
			for range 2 * maxStreams {
				dial(t, "tcp", a)
			}
			if err := b.Send(a.Addr(), []byte("hello")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a datagram arrives", func() bool { packets, _ := in.got(); return len(packets) == 1 })
			if err := b.Join(a.Addr(), nil); err != nil { // fails after StreamTimeout
				t.Error(err)
			}
			for range 2 * maxStreams {
				dial(t, "tcp", a)
			}
			var closed atomic.Bool
			go func() { _ = a.Close(); closed.Store(true) }()
			eventually(t, "Close returns", closed.Load)
		})
	}
}

// After its head, a stream has StreamTimeout as before.
func TestTimeoutEndsWithTheHead(t *testing.T) {
	n, _ := start(t, "a#1", func(c *Config) { c.StreamTimeout = 10 * time.Second })
	conn := dial(t, "tcp", n)
	write(t, conn, []byte("\xf4\x04test\x00")) // a ping without its body
	_ = conn.SetReadDeadline(time.Now().Add(maxHeadTimeout + 500*time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v: closed early", err)
	}
}

// A node that is slow to begin is not sent away as one of another cluster.
func TestSlowHead(t *testing.T) {
	n, _ := start(t, "a#1", nil)
	conn := dial(t, "tcp", n)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(conn); err != nil || !bytes.Equal(b, []byte{typeBusy}) {
		t.Errorf("after its time it gets %v (%v)", b, err)
	}
}

// A caller that says hello and then nothing keeps its place no longer than one that says nothing at all.
func TestSilentAfterHello(t *testing.T) {
	n, _ := start(t, "a#1", func(c *Config) {
		c.StreamTimeout, c.Self = time.Minute, func() Peer { return Peer{7, lease.ClusterID{3}} }
	})
	conn := dial(t, "tcp", n)
	write(t, conn, newCredentials("test", nil, nil).hello(make([]byte, numberSize)))
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if b, err := io.ReadAll(conn); err != nil || len(b) < 2 || b[0] != welcome || b[len(b)-1] != typeBusy {
		t.Errorf("it gets %v (%v), want a welcome and the end", b, err)
	}
}
