package gossip

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// Bounds of incoming watch streams. A node has four watchers, and more only while nodes
// differ in who is live. A watcher beyond the bounds has no stream, and so no evidence.
const (
	maxWatchers     = 64
	maxWatchersFrom = 8 // of one source address, where there is no key
)

// watcherKeepAlive frees the place of a watcher on a host that vanished.
var watcherKeepAlive = net.KeepAliveConfig{ //nolint:gochecknoglobals // a constant
	Enable:   true,
	Idle:     10 * time.Second,
	Interval: 10 * time.Second,
	Count:    3,
}

var errWatchers = errors.New("gossip: too many watch streams")

// watched counts the incoming watch streams.
type watched struct {
	mu    sync.Mutex
	total int
	from  map[netip.Addr]int
}

// enter counts one stream more, if that is within the bounds.
func (w *watched) enter(from netip.Addr, most int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= maxWatchers || w.from[from] >= most {
		return errWatchers
	}
	if w.from == nil {
		w.from = make(map[netip.Addr]int)
	}
	w.total++
	w.from[from]++
	return nil
}

func (w *watched) leave(from netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.from[from]--; w.from[from] == 0 {
		delete(w.from, from)
	}
}

func (w *watched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// serveWatcher answers a watcher and holds the stream until its end. It calls answered
// after the handshake.
func (g *guard) serveWatcher(c *vettedConn, answered func()) {
	conn := c.Conn
	defer func() { _ = conn.Close() }()
	defer answered()
	if err := g.answerWatcher(c); err != nil {
		if errors.Is(err, errProof) || errors.Is(err, errWatch) || errors.Is(err, os.ErrDeadlineExceeded) {
			g.dropped.Add(1)
		}
		return
	}
	from, most := source(conn), maxWatchers
	if g.credentials.Load().TakesPlain {
		most = maxWatchersFrom
	}
	if g.watched.enter(from, most) != nil { // not before the proof: unauthenticated peers must not take the places
		return
	}
	defer g.watched.leave(from)
	if _, err := c.Write([]byte{held}); err != nil {
		return
	}
	answered()
	c.head = nil // a stream at rest needs no buffer
	_ = rest(conn, watcherKeepAlive)
}

// answerWatcher is the handshake but for its last byte.
func (g *guard) answerWatcher(c *vettedConn) error {
	if err := c.SetDeadline(time.Now().Add(g.headTimeout)); err != nil {
		return err
	}
	var self lease.Handle
	if g.self != nil {
		self = g.self().Node
	}
	if err := g.credentials.Load().answer(c, self); err != nil {
		return err
	}
	if c.head.Buffered() > 0 {
		return errWatch
	}
	return nil
}

// rest waits for the end of a stream that says nothing.
func rest(conn net.Conn, keepAlive net.KeepAliveConfig) error {
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// A *net.TCPConn, or a connection of the simulated network.
	if c, ok := conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		if err := c.SetKeepAliveConfig(keepAlive); err != nil {
			return err
		}
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	return errWatch
}

// source returns the address of the other side, without its port.
func source(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return firewall.HostOf(at.Addr())
}
