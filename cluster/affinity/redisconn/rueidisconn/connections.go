package rueidisconn

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

type dialer = func(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (net.Conn, error)

// dialed returns dial, or the default dialer if dial is nil.
func dialed(dial dialer) dialer {
	if dial != nil {
		return dial
	}
	return func(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (net.Conn, error) {
		if security != nil {
			return (&tls.Dialer{NetDialer: d, Config: security}).DialContext(ctx, "tcp", addr)
		}
		return d.DialContext(ctx, "tcp", addr)
	}
}

// connections tracks the connections of a client. Each connection reports its loss before it closes and
// before the client uses the next connection to the same address. Otherwise, an answer from the next
// connection could arrive first. Data that the server has lost would then look like a change by another node.
type connections struct {
	dial dialer
	lost func()

	mu   sync.Mutex
	last map[string]*connection // by address; the client has one connection to each
	// several means that the client has more than one connection to an address, because it receives messages
	// over a separate connection (protocol=2). With several connections, opening a connection does not report
	// the loss of the previous connection.
	several bool

	failed error // error of the latest attempt; nil: it succeeded
}

func newConnections(dial dialer, lost func()) *connections {
	return &connections{dial: dial, lost: lost, last: make(map[string]*connection)}
}

// open dials an address for the client.
func (c *connections) open(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (net.Conn, error) {
	conn, err := c.dial(ctx, addr, d, security)
	c.mu.Lock()
	if c.failed = err; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	next := &connection{Conn: conn, lost: sync.OnceFunc(c.lost)}
	former := c.last[addr]
	c.last[addr] = next
	if c.several {
		former = nil
	}
	c.mu.Unlock()
	if former != nil {
		former.announce() // the former connection may have failed without being closed yet
	}
	return next, nil
}

// unreachable returns why the latest attempt to connect failed, or nil if it succeeded.
func (c *connections) unreachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// close closes all connections. Calls in progress fail with why, and the client dials again for its next
// call.
func (c *connections) close(why error) {
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.last))
	c.mu.Unlock()
	for _, conn := range open {
		conn.why.CompareAndSwap(nil, &why)
		_ = conn.Close()
	}
}

// connection reports its loss once, and concurrent callers wait for that report. If the server never answered
// or refused the connection, the connection reports no loss, because the client dials such a server
// repeatedly.
type connection struct {
	net.Conn
	lost func() // called at most once
	read atomic.Bool
	used atomic.Bool           // the first answer was not an error
	why  atomic.Pointer[error] // why this package closed the connection
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.read.Load() {
		c.used.Store(b[0] != '-')
		c.read.Store(true)
	}
	if why := c.why.Load(); err != nil && why != nil {
		err = *why
	}
	return n, err
}

func (c *connection) Close() error {
	c.announce()
	return c.Conn.Close()
}

func (c *connection) announce() {
	if c.used.Load() {
		c.lost()
	}
}
