package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// window is how many unread bytes make a writer wait. It is about the initial size of
// Linux' send and receive buffers together.
const window = 256 << 10

// stream is a connection: two ends, each with the bytes that arrived there. net.Pipe has
// no buffer, so a write to a paused node, or a last write before a close, would behave
// unlike a real network.
type stream struct {
	ends    [2]*conn
	broken  bool
	lost    time.Time     // since when the network carries nothing; zero = it works
	changed chan struct{} // closed and replaced at every change that waiting calls depend on
}

// conn is an end of a stream. It is a [net.Conn], and the network's mutex guards it.
type conn struct {
	s    *stream
	peer *conn
	t    *Transport // the owner of this end

	in        []byte // arrived, not read
	closed    bool   // by this end
	readBy    time.Time
	writeBy   time.Time
	keepAlive time.Duration // how long this end tolerates silence; 0 = it has no keep-alive
}

func newStream(a, b *Transport) *stream {
	s := &stream{changed: make(chan struct{})}
	near, far := &conn{s: s, t: a}, &conn{s: s, t: b}
	near.peer, far.peer = far, near
	s.ends = [2]*conn{near, far}
	return s
}

// keptAlive reports whether an end has a keep-alive.
func (s *stream) keptAlive() bool { return s.ends[0].keepAlive > 0 || s.ends[1].keepAlive > 0 }

// wake makes every waiting call check its condition again.
func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// hungUp reports whether the other end can see that this end is closed. If the node is paused, its close is
// only visible after Resume.
func (c *conn) hungUp() bool { return c.closed && c.t.state != paused && c.s.lost.IsZero() }

// Read waits for at least one byte, the end of the stream, or the deadline.
func (c *conn) Read(p []byte) (n int, err error) {
	err = c.transfer("read", &c.readBy, func() (bool, error) {
		switch {
		case len(p) == 0:
			return true, nil
		case len(c.in) > 0:
			n = copy(p, c.in)
			c.in = c.in[n:]
			return true, nil
		case c.peer.hungUp():
			return true, io.EOF
		}
		return false, nil
	})
	return n, err
}

// Write waits only while the window is full, or the network carries nothing.
func (c *conn) Write(p []byte) (n int, err error) {
	err = c.transfer("write", &c.writeBy, func() (bool, error) {
		switch {
		case c.peer.hungUp():
			return true, syscall.EPIPE
		case len(c.peer.in) >= window || !c.s.lost.IsZero():
			return false, nil
		}
		n = len(p)
		c.peer.in = append(c.peer.in, p...)
		return true, nil
	})
	return n, err
}

// transfer calls try after each change until it is done, the stream ends, or the deadline
// has passed.
func (c *conn) transfer(op string, deadline *time.Time, try func() (done bool, err error)) error {
	mu := &c.t.net.mu
	mu.Lock()
	defer mu.Unlock()
	for {
		err := c.usable(*deadline)
		done := err != nil
		if !done && c.t.state != paused {
			done, err = try()
		}
		switch {
		case done && (err == nil || errors.Is(err, io.EOF)):
			c.s.wake()
			return err
		case done:
			return c.t.opError(op, "tcp", c.peer.t.addr, err)
		}
		changed, until := c.s.changed, *deadline
		if silent := c.silentAt(); until.IsZero() || (!silent.IsZero() && silent.Before(until)) {
			until = silent
		}
		mu.Unlock()
		wait(changed, until)
		mu.Lock()
	}
}

// usable returns the reason why this end can transfer no more bytes, or nil.
func (c *conn) usable(deadline time.Time) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.s.broken:
		return syscall.ECONNRESET
	case !c.silentAt().IsZero() && !time.Now().Before(c.silentAt()):
		return syscall.ETIMEDOUT
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// silentAt returns when the keep-alive of this end gives up, or zero if it does not give up.
func (c *conn) silentAt() time.Time {
	if c.s.lost.IsZero() || c.keepAlive == 0 {
		return time.Time{}
	}
	return c.s.lost.Add(c.keepAlive)
}

// wait returns after a change or at the deadline.
func wait(changed <-chan struct{}, deadline time.Time) {
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

// Close ends the stream. The other end can still read the bytes written before.
func (c *conn) Close() error {
	n := c.t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	c.shut()
	return nil
}

// shut closes this end, and forgets the stream if the other end is closed, too.
func (c *conn) shut() {
	c.closed = true
	c.s.wake()
	if c.peer.closed {
		n := c.t.net
		n.streams = slices.DeleteFunc(n.streams, func(s *stream) bool { return s == c.s })
	}
}

// SetKeepAliveConfig sets how long this end tolerates silence. The kernel of the other host answers
// keep-alives, even for a paused process.
func (c *conn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	c.t.net.mu.Lock()
	defer c.t.net.mu.Unlock()
	if c.closed {
		return c.t.opError("set", "tcp", c.peer.t.addr, net.ErrClosed)
	}
	c.keepAlive = 0
	if k.Enable {
		c.keepAlive = k.Idle + time.Duration(k.Count)*k.Interval
	}
	c.s.wake()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.t.addr) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.peer.t.addr) }

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(t, &c.readBy, &c.writeBy) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(t, &c.readBy) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeBy) }

func (c *conn) setDeadlines(t time.Time, which ...*time.Time) error {
	c.t.net.mu.Lock()
	defer c.t.net.mu.Unlock()
	if c.closed {
		return c.t.opError("set", "tcp", c.peer.t.addr, net.ErrClosed)
	}
	for _, deadline := range which {
		*deadline = t
	}
	c.s.wake()
	return nil
}
