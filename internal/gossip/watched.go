package gossip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// serveWatcher answers a watcher and holds the stream until its end. After the handshake, the stream gives its place back.
func (g *greeter) serveWatcher(s *firewall.Stream) error {
	switch err := g.answerWatcher(s); {
	case errors.Is(err, errProof), errors.Is(err, errWatch):
		return fmt.Errorf("%w: %w", firewall.ErrHead, err)
	case err != nil:
		return err
	}
	from, most := s.Host(), maxWatchers
	if g.credentials.Load().TakesPlain {
		most = maxWatchersFrom
	}
	if err := g.watched.enter(from, most); err != nil { // not before the proof: unauthenticated peers must not take the places
		return err
	}
	defer g.watched.leave(from)
	if _, err := s.Write([]byte{held}); err != nil {
		return err
	}
	s.Rest()
	_ = rest(s.Conn, watcherKeepAlive)
	return nil
}

// answerWatcher is the handshake but for its last byte.
func (g *greeter) answerWatcher(s *firewall.Stream) error {
	if err := s.SetDeadline(time.Now().Add(g.headTimeout)); err != nil {
		return err
	}
	var self lease.Handle
	if g.self != nil {
		self = g.self().Node
	}
	if err := g.credentials.Load().answer(s, self); err != nil {
		return err
	}
	if s.Buffered() > 0 {
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
