package simnet

import (
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// window is how many unread bytes a stream holds; a writer waits beyond that. It is
// about the initial size of Linux' send and receive buffers together.
const window = 256 << 10

// stream is a connection: two ends, each with the bytes that arrived there. net.Pipe has
// no buffer, so a write to a paused node, or a last write before a close, would behave
// unlike a real network.
type stream struct {
	mu      sync.Mutex
	ends    [2]*conn
	broken  bool
	changed chan struct{} // closed and replaced at every change that a wait depends on
}

// conn is one end of a stream, a [net.Conn]. s.mu guards the fields below t.
type conn struct {
	s    *stream
	peer *conn
	t    *Transport // the owner of this end

	in      []byte // arrived, not read
	closed  bool   // by this end
	stalled bool   // the node is paused
	readBy  time.Time
	writeBy time.Time
}

func newStream(a, b *Transport) (near, far *conn) {
	s := &stream{changed: make(chan struct{})}
	near, far = &conn{s: s, t: a}, &conn{s: s, t: b}
	near.peer, far.peer = far, near
	s.ends = [2]*conn{near, far}
	return near, far
}

// wake makes every waiting call check its condition again. s.mu is held.
func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// breakOff resets the stream: unread bytes are lost.
func (s *stream) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.wake()
}

// wait returns after a change or at the deadline. s.mu is held, but released during the
// wait.
func (s *stream) wait(deadline time.Time) {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	if deadline.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// usable returns why this end can transfer no further byte, or nil. s.mu is held.
func (c *conn) usable(deadline time.Time) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.s.broken:
		return syscall.ECONNRESET
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// hungUp reports whether the other end can see that this end is closed: the close of a
// paused node is visible after Resume only. s.mu is held.
func (c *conn) hungUp() bool { return c.closed && !c.stalled }

// Read waits for at least one byte, the end of the stream, or the deadline.
func (c *conn) Read(p []byte) (int, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := c.usable(c.readBy); err != nil {
			return 0, c.opError("read", err)
		}
		switch {
		case c.stalled:
		case len(p) == 0:
			return 0, nil
		case len(c.in) > 0:
			n := copy(p, c.in)
			c.in = c.in[n:]
			s.wake()
			return n, nil
		case c.peer.hungUp():
			return 0, io.EOF
		}
		s.wait(c.readBy)
	}
}

// Write waits only while the window is full.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.write(p)
	c.t.net.mu.Lock()
	defer c.t.net.mu.Unlock()
	c.t.net.stats.StreamBytes += uint64(n)
	c.t.traffic.StreamBytesSent += uint64(n)
	return n, err
}

func (c *conn) write(p []byte) (n int, err error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := c.usable(c.writeBy); err != nil {
			return n, c.opError("write", err)
		}
		room := window - len(c.peer.in)
		switch {
		case c.stalled:
		case c.peer.hungUp():
			return n, c.opError("write", syscall.EPIPE)
		case n == len(p):
			return n, nil
		case room > 0:
			k := min(room, len(p)-n)
			c.peer.in = append(c.peer.in, p[n:n+k]...)
			n += k
			s.wake()
			continue
		}
		s.wait(c.writeBy)
	}
}

// Close ends the stream in order: the other end still reads the bytes written before.
func (c *conn) Close() error {
	if !c.shut() {
		return nil
	}
	n := c.t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.streams = slices.DeleteFunc(n.streams, func(s *stream) bool { return s == c.s })
	return nil
}

// shut closes this end and reports whether the other end is closed, too.
func (c *conn) shut() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.closed = true
	c.s.wake()
	return c.peer.closed
}

func (c *conn) setStalled(stalled bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.stalled = stalled
	c.s.wake()
}

func (c *conn) LocalAddr() net.Addr  { return c.t.tcp }
func (c *conn) RemoteAddr() net.Addr { return c.peer.t.tcp }

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(&t, &t) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(&t, nil) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read != nil {
		c.readBy = *read
	}
	if write != nil {
		c.writeBy = *write
	}
	c.s.wake()
	return nil
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.t.tcp, Addr: c.peer.t.tcp, Err: err}
}
