package simnet

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// backlog is how many dialed streams may wait to be accepted.
	backlog = 128

	// dialTimeout is the timeout of a dial without one of its own: about as long as Linux
	// repeats its SYN.
	dialTimeout = 127 * time.Second
)

type state int

const (
	running state = iota
	paused
	crashed
	shut
)

// Transport is one node's access to a [Network], with the interface that memberlist
// needs. All methods may be called concurrently.
type Transport struct {
	net      *Network
	addr     netip.AddrPort
	udp      *net.UDPAddr
	tcp      *net.TCPAddr
	packets  chan *memberlist.Packet
	conns    chan net.Conn
	gone     chan struct{} // closed by Crash or Shutdown
	rng      *rand.Rand    // net.mu guards this and all fields below
	state    state
	queue    []*memberlist.Packet // arrived while paused
	queued   int                  // bytes in queue, as charged
	unserved []*conn              // dialed while paused
	traffic  Traffic
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// Addr returns the address of the listener, as host:port.
func (t *Transport) Addr() string { return t.addr.String() }

// FinalAdvertiseAddr returns ip and port if ip is given, otherwise the address of the
// listener.
func (t *Transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
	}
	given, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("simnet: advertised address: %w", err)
	}
	return given.Unmap().AsSlice(), port, nil
}

// PacketCh returns the channel of received packets. It is never closed.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the channel of incoming streams. It is never closed.
func (t *Transport) StreamCh() <-chan net.Conn { return t.conns }

// DialTimeout opens a stream to addr. Without a listener there it fails at once, with
// ECONNREFUSED. Without an answer, because of a cut, a paused node or a full backlog, it
// fails after the timeout with a [net.Error] with Timeout true. A timeout of 0 stands for
// 127 s. Crash and Shutdown of t end the wait.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = dialTimeout
	}
	if timeout > 0 { // memberlist passes the time until a deadline
		c, err := t.connect(to)
		if c != nil {
			return c, nil
		}
		if err != nil {
			return nil, t.dialError(to, err)
		}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, t.dialError(to, os.ErrDeadlineExceeded)
	case <-t.gone:
		return nil, t.dialError(to, net.ErrClosed)
	}
}

// DialAddressTimeout is [Transport.DialTimeout]; it ignores the name.
func (t *Transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(addr.Addr, timeout)
}

// connect returns a stream, an error if the dial fails at once, or neither if there is no
// answer.
func (t *Transport) connect(to netip.AddrPort) (*conn, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	dst := n.nodes[to]
	switch {
	case t.state == crashed || t.state == shut:
		return nil, net.ErrClosed
	case t.state == paused || n.separated(t.addr, to):
		return nil, nil
	case dst == nil:
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	case len(dst.conns)+len(dst.unserved) >= backlog:
		return nil, nil
	}
	near, far := newStream(t, dst)
	n.streams = append(n.streams, near.s)
	n.stats.StreamsOpened++
	if dst.state == paused {
		dst.unserved = append(dst.unserved, far)
	} else {
		dst.conns <- far // has room: n.mu excludes other senders
	}
	return near, nil
}

func (t *Transport) dialError(to netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Source: t.tcp, Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// Pause stops the node, like SIGSTOP, until Resume. It has no effect on a node that is not
// running.
func (t *Transport) Pause() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state != running {
		return
	}
	t.state = paused
	for c := range t.ends() {
		c.setStalled(true)
	}
}

// Resume continues a paused node. Queued packets arrive before all later ones.
func (t *Transport) Resume() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state != paused {
		return
	}
	t.state = running
	now := time.Now()
	for _, p := range t.queue {
		t.deliver(p, now)
	}
	for _, c := range t.unserved {
		t.conns <- c // connect reserved the room
	}
	t.queue, t.queued, t.unserved = nil, 0, nil
	for c := range t.ends() {
		c.setStalled(false)
	}
}

// Crash ends the node, like kill -9. The code above continues without a network, and
// should be shut down in the end, which calls Shutdown.
func (t *Transport) Crash() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state == crashed || t.state == shut {
		return
	}
	t.detach(crashed)
	t.net.breakStreams(func(s *stream) bool { return s.ends[0].t == t || s.ends[1].t == t })
}

// Shutdown removes the node from the network and closes its ends of all streams: the other
// ends read the bytes written before, then the end of file. Packets already sent still
// arrive. Shutdown always returns nil, and may be called again.
func (t *Transport) Shutdown() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	switch t.state {
	case running, paused:
		t.detach(shut)
		for c := range t.ends() {
			c.setStalled(false)
		}
		t.net.streams = slices.DeleteFunc(t.net.streams, func(s *stream) bool {
			return slices.ContainsFunc(s.ends[:], func(c *conn) bool { return c.t == t && c.shut() })
		})
	case crashed, shut:
		t.state = shut
	}
	return nil
}

// Traffic returns the current counters of this node.
func (t *Transport) Traffic() Traffic {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	return t.traffic
}

// detach frees the address and drops the queue. net.mu is held.
func (t *Transport) detach(to state) {
	t.state = to
	delete(t.net.nodes, t.addr)
	t.net.stats.Dropped.NoListener += uint64(len(t.queue))
	t.queue, t.queued, t.unserved = nil, 0, nil
	close(t.gone)
}

// ends yields this node's ends of streams. net.mu is held.
func (t *Transport) ends() iter.Seq[*conn] {
	return func(yield func(*conn) bool) {
		for _, s := range t.net.streams {
			for _, c := range s.ends {
				if c.t == t && !yield(c) {
					return
				}
			}
		}
	}
}
