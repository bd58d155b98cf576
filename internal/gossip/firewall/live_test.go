package firewall_test

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

const (
	label  = "\xf4\x04test"
	slots  = 256      // number of incoming streams
	toRead = 14 << 20 // bytes that larger messages may announce together
	sealed = 29       // bytes that encryption adds to a message
)

func theKey() []byte { return bytes.Repeat([]byte{7}, 32) }

// exchange returns a full exchange in plain text, in memberlist's format, with rest after its head.
func exchange(nodes, state int, rest string) string {
	number := func(n int) string { return string(binary.BigEndian.AppendUint32([]byte{0xce}, uint32(n))) }
	return "\x06\x83\xa5Nodes" + number(nodes) + "\xacUserStateLen" + number(state) + "\xa4Join\xc2" + rest
}

// seal returns an encrypted message in memberlist's format, with the given version byte.
func seal(t *testing.T, version byte, content, data string) string {
	t.Helper()
	block, err := aes.NewCipher(theKey())
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1+12) // version and nonce
	b[0] = version
	return string(gcm.Seal(b, b[1:], []byte(content), []byte(data)))
}

// A packet that expands to 1 MiB is counted, and the node continues.
func TestCompressedPacketIsDropped(t *testing.T) {
	m := start(t, "a#1", keys(), nil)
	conn := dial(t, "udp", m)
	var lzwed bytes.Buffer
	w := lzw.NewWriter(&lzwed, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	write(t, conn, []byte(label+"\x09"+lzwed.String()))
	eventually(t, "the packet is counted", func() bool { return m.firewall.Dropped() == 1 })
	write(t, conn, []byte(label+"\x08hello"))
	eventually(t, "the next packet arrives", func() bool { packets, _ := m.got(); return len(packets) == 1 })
}

// A node that only accepts encrypted packets counts an unencrypted ping under WrongKey, like other unencrypted packets.
// The ping begins with the byte that marks an encrypted packet as padded, but it must not count as padded.
func TestPlainPing(t *testing.T) {
	m := start(t, "a#1", keys(theKey()), nil)
	conn := dial(t, "udp", m)
	write(t, conn, []byte(label+"\x00\x82\xa5SeqNo\x01\xa4Node\xa3a#1 and an address"))
	eventually(t, "the ping is counted", func() bool { return m.rejections.Count(firewall.WrongKey)+m.firewall.Dropped() > 0 })
	if m.rejections.Count(firewall.WrongKey) != 1 || m.firewall.Dropped() != 0 {
		t.Errorf("counted as %d without the key, and %d that no node sends; want 1 and 0",
			m.rejections.Count(firewall.WrongKey), m.firewall.Dropped())
	}
	if r := m.rejections.All(); len(r) != 1 || r[0].Why != firewall.WrongKey || r[0].From != conn.LocalAddr().String() {
		t.Errorf("rejections %+v", r)
	}
	write(t, conn, []byte(label+seal(t, 0, "\x08hello\xff", "test")))
	eventually(t, "a padded packet of a holder of the key is one that no node sends", func() bool { return m.firewall.Dropped() == 1 })
}

// While a node accepts both plain text and encrypted messages, the limits for plain text apply to every packet that no
// key decrypts. A padded packet does not reach memberlist even if its sender has the key.
func TestBoundsWhilePlainTextIsAccepted(t *testing.T) {
	for _, sendsPlain := range []bool{true, false} {
		m := start(t, "a#1", firewall.Keys{Secrets: [][]byte{theKey()}, SendsPlain: sendsPlain, TakesPlain: true}, nil)
		conn := dial(t, "udp", m)
		write(t, conn, []byte(label+"\x09\x01\x02\x03"))
		eventually(t, "a compressed packet is dropped", func() bool { return m.firewall.Dropped() == 1 })
		write(t, conn, []byte(label+seal(t, 0, "\x08hello\xff", "test")))
		eventually(t, "a padded packet is dropped", func() bool { return m.firewall.Dropped() == 2 })
		write(t, conn, []byte(label+seal(t, 1, "\x08hello", "test")))
		eventually(t, "the next packet arrives", func() bool { packets, _ := m.got(); return len(packets) == 1 })
	}
}

// If a head announces a million nodes, memberlist would use 109 MB, so the firewall rejects the head.
func TestExcessiveHeadsAreRejected(t *testing.T) {
	m := start(t, "a#1", keys(), nil)
	conn := dial(t, "tcp", m)
	write(t, conn, []byte(label+exchange(1<<20, 0, "")))
	eventually(t, "the stream is counted", func() bool { return m.firewall.Dropped() == 1 })
	ends(t, conn)
	if got := m.firewall.Dropped(); got != 1 {
		t.Errorf("one stream was counted %d times", got)
	}
}

// The firewall also checks the answer on an outgoing connection.
func TestPromisesInAnswers(t *testing.T) {
	l := listener(t)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(exchange(1<<20, 0, "")))
		_, _ = io.Copy(io.Discard, conn)
	}()
	m := start(t, "a#1", keys(), nil)
	if err := m.join(l.Addr().String()); err == nil || !strings.Contains(err.Error(), firewall.ErrHead.Error()) {
		t.Errorf("error %v, want %v", err, firewall.ErrHead)
	}
}

// both runs a test without a key and with one.
func both(t *testing.T, test func(t *testing.T, k firewall.Keys)) {
	t.Helper()
	for name, k := range map[string]firewall.Keys{"plain": keys(), "encrypted": keys(theKey())} {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// Silent connections must not block packets, delay joins until the timeout, or block Shutdown.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	both(t, func(t *testing.T, k firewall.Keys) {
		t.Parallel()
		a, b := start(t, "a#1", k, nil), start(t, "b#1", k, nil)
		for range 2 * slots {
			dial(t, "tcp", a)
		}
		if err := b.send(a, "hello"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a datagram arrives", func() bool { packets, _ := a.got(); return len(packets) == 1 })
		if err := b.join(a.addr()); err != nil { // would fail after the timeout
			t.Error(err)
		}
		for range 2 * slots {
			dial(t, "tcp", a)
		}
		var closed atomic.Bool
		go func() { _ = a.firewall.Shutdown(); closed.Store(true) }()
		eventually(t, "Shutdown returns", closed.Load)
	})
}

// When the head of a stream has arrived, HeadTimeout no longer applies.
func TestTimeoutEndsWithTheHead(t *testing.T) {
	m := start(t, "a#1", keys(), func(c *firewall.Config) { c.StreamTimeout = time.Minute })
	conn := dial(t, "tcp", m)
	write(t, conn, []byte(label+"\x00")) // a ping without its body
	_ = conn.SetReadDeadline(time.Now().Add(1500 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v: closed early", err)
	}
}

// A node that is slow to send its head gets the byte Busy, so that it does not conclude that this is another cluster.
func TestSlowHead(t *testing.T) {
	m := start(t, "a#1", keys(), nil)
	if b := ends(t, dial(t, "tcp", m)); !bytes.Equal(b, []byte{firewall.Busy}) {
		t.Errorf("after its time it gets %v", b)
	}
}

// A sender that has the key can encrypt messages that no agent sends. They do not reach memberlist, because some of
// them would end the process, or make it use far more memory than the size of the message.
func TestSealedNonsense(t *testing.T) {
	t.Parallel()
	m := start(t, "a#1", keys(theKey()), nil)
	refused := uint64(0)
	counts := func(name string) {
		t.Helper()
		refused++
		eventually(t, name+": it is counted", func() bool { return m.firewall.Dropped() == refused })
	}
	for name, content := range map[string]string{
		"nothing":                   "",
		"compressed":                "\x09\x82\xa4Algo\x00\xa3Buf\xc4\x01x",
		"a label":                   label + "\x00",
		"sealed again":              "\x0a\x00\x00\x00\x00",
		"a state that is not there": exchange(1, lease.MaxMessageBytes, "\x80"),
		"nodes that are not there":  exchange(2*lease.MaxNodes, 0, "\x80"),
	} {
		head := string(binary.BigEndian.AppendUint32([]byte("\x0a"), uint32(sealed+len(content))))
		conn := dial(t, "tcp", m)
		write(t, conn, []byte(label+head+seal(t, 1, content, head+"test")))
		counts(name)
		ends(t, conn)
	}
	padded := strings.Repeat("x", 15) + "\xff" // the last byte claims 255 bytes of padding
	write(t, dial(t, "udp", m), []byte(label+seal(t, 0, padded, "test")))
	counts("padded packet")
	if err := start(t, "b#1", keys(theKey()), nil).join(m.addr()); err != nil {
		t.Error(err)
	}
}

// retry joins, in several attempts if necessary. On a slow machine, a stream that takes long may be closed to make
// room.
func retry(m, seed *member) (err error) {
	for range 10 {
		if err = m.join(seed.addr()); err == nil || !gaveWay(err) {
			break
		}
	}
	return err
}

// gaveWay reports whether the other side closed a stream to make room, or did not serve it in time.
func gaveWay(err error) bool {
	for _, text := range []string{firewall.ErrBusy.Error(), firewall.ErrEvicted.Error(), "EOF", "connection reset", "i/o timeout"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// Exchanges of any size succeed, even if there are more exchanges than slots at the same time.
func TestManyExchanges(t *testing.T) {
	both(t, func(t *testing.T, k firewall.Keys) {
		withTimeout := func(c *firewall.Config) { c.StreamTimeout = 20 * time.Second }
		a, b := start(t, "a#1", k, withTimeout), start(t, "b#1", k, withTimeout)
		a.holds(300 << 10) // together, the exchanges that are served concurrently exceed their budget
		if len(k.Secrets) > 0 {
			a.holds(80 << 10) // encrypting as much would take minutes on a busy machine
		}
		for _, size := range []int{0, 8 << 10, 6 << 20} {
			b.holds(size)
			if err := retry(b, a); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		b.holds(5)
		var all sync.WaitGroup
		for range slots + 20 {
			all.Go(func() {
				if err := retry(b, a); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// A large exchange succeeds while unauthenticated peers announce messages that use up the whole budget, but send
// nothing.
func TestLargeExchangeAmongOutsiders(t *testing.T) {
	withTimeout := func(d time.Duration) func(*firewall.Config) {
		return func(c *firewall.Config) { c.StreamTimeout = d }
	}
	var outsiders sync.WaitGroup
	t.Cleanup(outsiders.Wait)
	a := start(t, "a#1", keys(theKey()), withTimeout(time.Hour)) // the streams of the unauthenticated peers do not time out here
	b := start(t, "b#1", keys(theKey()), withTimeout(10*time.Second))
	const announced = 2 << 20
	for range 64 {
		outsiders.Go(func() { // each dials again when its stream is closed, so a retry competes with as many streams
			for t.Context().Err() == nil {
				if conn, err := net.Dial("tcp", a.addr()); err == nil {
					_, _ = conn.Write(binary.BigEndian.AppendUint32([]byte(label+"\x0a"), announced))
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}
		})
	}
	eventually(t, "the memory is short, and streams make room", func() bool { return a.firewall.Dropped() > toRead/announced })
	b.holds(1 << 20)
	if err := retry(b, a); err != nil {
		t.Error(err)
	}
	eventually(t, "the state is there", func() bool { _, merged := a.got(); return len(merged) > 0 })
}
