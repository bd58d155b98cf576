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

// Limits for incoming watch streams. Usually four nodes watch a node. More nodes watch it only while they
// disagree about who is live. If a limit is reached, further watchers get no stream, and so cannot report the
// failure of this node.
const (
	maxWatchers     = 64
	maxWatchersFrom = 8 // from one source address, if there is no key
)

// watcherKeepAlive closes the stream of a watcher whose host has vanished, which frees its slot.
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

// enter counts one more stream, or returns an error if a limit has been reached.
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

// serveWatcher answers a watcher, and keeps the stream open until either side ends it. After the handshake,
// the stream no longer uses a slot of the firewall.
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
	if err := g.watched.enter(from, most); err != nil { // after the proof, because unauthenticated peers must not take the slots
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

// answerWatcher performs the handshake, except for its last byte.
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

// rest waits for the end of a stream on which no data is sent.
func rest(conn net.Conn, keepAlive net.KeepAliveConfig) error {
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// The connection is a *net.TCPConn, or a connection of the simulated network.
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
