package gossip

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// shake runs both sides of a handshake. tap gets a copy of what the watcher sends.
func shake(t *testing.T, watcher, subject *credentials, self lease.Handle, tap io.Writer) (got lease.Handle, near, far error) {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		_, err := io.ReadFull(b, make([]byte, len(subject.head(typeWatch))))
		if err == nil {
			err = subject.answer(b, self)
		}
		if err == nil {
			_, err = b.Write([]byte{held})
		}
		done <- err
	}()
	got, near = watcher.watch(struct {
		io.Reader
		io.Writer
	}{a, io.MultiWriter(a, tap)})
	_ = a.Close()
	return got, near, <-done
}

func TestHandshake(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	keys := func(label string, key []byte, old ...[]byte) *credentials { return newCredentials(label, key, old) }
	for _, c := range []struct {
		name             string
		watcher, subject *credentials
		ok               bool
	}{
		{"plain", keys("x", nil), keys("x", nil), true},
		{"no label", keys("", nil), keys("", nil), true},
		{"one key", keys("x", one), keys("x", one), true},
		{"a key that rotates, first step", keys("x", one), keys("x", one, two), true},
		{"a key that rotates, second step", keys("x", two, one), keys("x", one, two), true},
		{"a key that rotates, last step", keys("x", two), keys("x", two, one), true},
		{"other keys", keys("x", one), keys("x", two), false},
		{"the watcher has none", keys("x", nil), keys("x", two), false},
		{"the subject has none", keys("x", one), keys("x", nil), false},
		{"other clusters", keys("x", one), keys("y", one), false},
	} {
		h, near, far := shake(t, c.watcher, c.subject, 77, io.Discard)
		if ok := near == nil && far == nil && h == 77; ok != c.ok {
			t.Errorf("%s: handle %d, watcher %v, subject %v", c.name, h, near, far)
		}
		if !c.ok && !errors.Is(near, errProof) {
			t.Errorf("%s: the watcher fails with %v", c.name, near)
		}
	}
	if _, near, far := shake(t, keys("x", nil), keys("x", nil), 0, io.Discard); near == nil || !errors.Is(far, errNoHandle) {
		t.Errorf("without a handle: %v, %v", near, far)
	}
}

// A recorded handshake cannot be replayed to open a second stream.
func TestHandshakeReplayed(t *testing.T) {
	c := newCredentials("test", bytes.Repeat([]byte{1}, 16), nil)
	var recorded bytes.Buffer
	if _, near, far := shake(t, c, c, 77, &recorded); near != nil || far != nil {
		t.Fatal(near, far)
	}
	_, _ = recorded.Read(make([]byte, len(c.head(typeWatch))))
	answers := new(bytes.Buffer)
	err := c.answer(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(recorded.Bytes()), answers}, 77)
	if !errors.Is(err, errProof) {
		t.Errorf("the subject accepts a recorded watcher: %v", err)
	}
	answers.WriteByte(held)
	if _, err := c.watch(answers); !errors.Is(err, errProof) {
		t.Errorf("the watcher accepts a recorded subject: %v", err)
	}
}

// A node cannot use the proof of a subject to act as a watcher.
func TestHandshakeReflected(t *testing.T) {
	c := newCredentials("test", bytes.Repeat([]byte{1}, 16), nil)
	s := session{handle: 7}
	if err := c.verify(c.proof(c.keys[0], roleSubject, &s), roleWatcher, &s); !errors.Is(err, errProof) {
		t.Errorf("error %v", err)
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

func (c *counted) Write(b []byte) (int, error) { return len(b), nil }

// watchFrame returns the first frame that a watcher sends.
func watchFrame() []byte {
	return appendFrame(nil, 2, func(w *wire.Writer) {
		w.Uint(watchVersion)
		w.Bytes(make([]byte, numberSize))
	})
}

// FuzzHandshake sends arbitrary bytes to both sides of a handshake. Neither side may accept them, or read beyond the
// frames that it expects.
func FuzzHandshake(f *testing.F) {
	c := newCredentials("test", bytes.Repeat([]byte{1}, 16), nil)
	f.Add(append(watchFrame(), proofFrame(make([]byte, sha256.Size))...))
	f.Add(appendFrame(nil, 3, func(w *wire.Writer) {
		w.Handle(7)
		w.Bytes(make([]byte, numberSize))
		w.Bytes(make([]byte, sha256.Size))
	}))
	f.Add([]byte{typeFrame, 5, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &counted{Reader: bytes.NewReader(b)}
		if err := c.answer(r, 7); err == nil || r.n > 2*(2+maxFrame) {
			t.Errorf("as subject: %v after %d bytes", err, r.n)
		}
		r = &counted{Reader: bytes.NewReader(b)}
		if h, err := c.watch(r); err == nil || h != 0 || r.n > 2+maxFrame {
			t.Errorf("as watcher: handle %d, %v after %d bytes", h, err, r.n)
		}
	})
}

// outsider opens a watch stream to a node. If finish is false, it sends only the first bytes of the handshake.
func outsider(t *testing.T, n *Node, c *credentials, finish bool) net.Conn {
	t.Helper()
	conn := dial(t, "tcp", n)
	if !finish {
		write(t, conn, append(c.head(typeWatch), typeFrame))
		return conn
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.watch(conn)
	return conn
}

// ends waits until the node closes a stream.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream of an unauthenticated peer stays open")
	}
}

func TestOutsidersHoldNoStream(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{7}, 32)
	n, _ := start(t, "a#1", func(c *Config) { as(5)(c); c.Key = key })
	good, bad := newCredentials("test", key, nil), newCredentials("test", nil, nil)
	ends(t, outsider(t, n, bad, true))
	ends(t, outsider(t, n, bad, false)) // closed when the time for a head is over
	eventually(t, "the firewall counts both", func() bool { return n.Dropped() == 2 })
	talker := outsider(t, n, good, true)
	if _, in := n.Streams(); in != 1 {
		t.Errorf("%d streams are held, want that with the key", in)
	}
	write(t, talker, []byte("x"))
	ends(t, talker)
	other := dial(t, "tcp", n)
	write(t, other, append(newCredentials("prod", key, nil).head(typeWatch), make([]byte, 60)...))
	ends(t, other)
	if _, in := n.Streams(); in != 0 {
		t.Errorf("%d streams are held", in)
	}
}

// Unauthenticated peers that stop in the middle of a handshake do not use up the slots of watchers.
func TestOutsidersKeepNoWatcherOut(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{7}, 32)
	n, _ := start(t, "a#1", func(c *Config) { as(5)(c); c.Key = key })
	bad := newCredentials("test", nil, nil)
	for range maxWatchers {
		conn := dial(t, "tcp", n)
		write(t, conn, append(bad.head(typeWatch), watchFrame()...))
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if err := readFrame(conn, 1, errWatch, func(r *wire.Reader) { r.Skip() }); err != nil {
			t.Fatal(err)
		}
	}
	conn := dial(t, "tcp", n)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := newCredentials("test", key, nil).watch(conn); err != nil {
		t.Errorf("a watcher among %d unauthenticated peers: %v", maxWatchers, err)
	}
}

// The number of watch streams is limited, and watch streams do not use up the slots of joins.
func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  []byte
		most int
	}{"plain, one address": {nil, maxWatchersFrom}, "keyed": {bytes.Repeat([]byte{7}, 32), maxWatchers}} {
		n, _ := start(t, "a#1", func(cfg *Config) { as(5)(cfg); cfg.Key = c.key })
		all := make([]net.Conn, c.most+10)
		for i := range all {
			all[i] = outsider(t, n, newCredentials("test", c.key, nil), true)
		}
		eventually(t, name+": the bound", func() bool { _, in := n.Streams(); return in == c.most })
		b, _ := start(t, "b#1", func(cfg *Config) { cfg.Key = c.key })
		begin := time.Now()
		if err := b.Join(n.Addr(), nil); err != nil || time.Since(begin) > maxHeadTimeout {
			t.Errorf("%s: a join takes %v: %v", name, time.Since(begin), err)
		}
		for _, conn := range all[:c.most/2] {
			_ = conn.Close()
		}
		eventually(t, name+": room again", func() bool { _, in := n.Streams(); return in == c.most-c.most/2 })
		outsider(t, n, newCredentials("test", c.key, nil), true)
		eventually(t, name+": one more", func() bool { _, in := n.Streams(); return in == c.most-c.most/2+1 })
	}
}
