package simnet

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	packetDepth = 4096  // packets that a node has not read yet
	maxPacket   = 65507 // bytes; the limit of UDP over IPv4
	backlog     = 128   // dialed streams that wait to be accepted
)

type state int

const (
	running state = iota
	paused
	crashed
	vanished
	shut
)

// Transport is one node's access to a [Network], with the interface that memberlist
// needs. All methods may be called concurrently.
type Transport struct {
	net      *Network
	addr     netip.AddrPort
	packets  chan *memberlist.Packet
	conns    chan net.Conn
	gone     chan struct{} // closed by Crash or Shutdown
	rng      *rand.Rand
	state    state
	queue    []*memberlist.Packet // arrived while paused
	unserved []*conn              // dialed while paused
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// FinalAdvertiseAddr returns the address of the listener, which is a node's only address.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// PacketCh returns the channel of received packets. It is never closed.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the channel of incoming streams. It is never closed.
func (t *Transport) StreamCh() <-chan net.Conn { return t.conns }

// WriteTo sends a packet of at most 65,507 bytes to addr. As with UDP, the packet may be
// lost even if the error is nil.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	to, err := netip.ParseAddrPort(addr)
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	switch {
	case err != nil:
	case len(b) > maxPacket:
		err = syscall.EMSGSIZE
	case t.state == shut:
		err = net.ErrClosed
	case t.state == running:
		t.net.send(t, to, b, now)
	}
	if err != nil {
		return time.Time{}, t.opError("write", "udp", to, err)
	}
	return now, nil
}

// WriteToAddress is [Transport.WriteTo]; it ignores the name.
func (t *Transport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

// arrive queues a packet while the node is paused, and delivers it otherwise.
func (t *Transport) arrive(p *memberlist.Packet, now time.Time) {
	if t.state == vanished {
		return
	}
	if t.state == paused {
		if len(t.queue) < packetDepth {
			t.queue = append(t.queue, p)
		}
		return
	}
	p.Timestamp = now
	select {
	case t.packets <- p:
	default: // like a full socket buffer
	}
}

// DialTimeout opens a stream to addr. If nothing listens there, it fails immediately with ECONNREFUSED. If there is no
// answer because of a cut, a paused node or a full backlog, it fails after the timeout with a [net.Error] whose Timeout
// is true. Crash and Shutdown of t end the wait.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err == nil && timeout > 0 { // memberlist passes the time until a deadline
		var c *conn
		if c, err = t.connect(to); c != nil {
			return c, nil
		}
	}
	if err != nil {
		return nil, t.opError("dial", "tcp", to, err)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, t.opError("dial", "tcp", to, os.ErrDeadlineExceeded)
	case <-t.gone:
		return nil, t.opError("dial", "tcp", to, net.ErrClosed)
	}
}

// DialAddressTimeout is [Transport.DialTimeout]; it ignores the name.
func (t *Transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(addr.Addr, timeout)
}

// connect returns a stream, or an error if the dial fails immediately, or neither if there is no answer.
func (t *Transport) connect(to netip.AddrPort) (*conn, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	dst := n.nodes[to]
	switch {
	case t.state != running && t.state != paused:
		return nil, net.ErrClosed
	case t.state == paused || n.separated(t.addr, to) || (dst != nil && dst.state == vanished):
		return nil, nil
	case dst == nil:
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	case len(dst.conns)+len(dst.unserved) >= backlog:
		return nil, nil
	}
	s := newStream(t, dst)
	n.streams = append(n.streams, s)
	if dst.state == paused {
		dst.unserved = append(dst.unserved, s.ends[1])
	} else {
		dst.conns <- s.ends[1] // has room, because n.mu excludes other senders
	}
	return s.ends[0], nil
}

func (t *Transport) opError(op, network string, to netip.AddrPort, err error) error {
	return &net.OpError{Op: op, Net: network, Source: net.TCPAddrFromAddrPort(t.addr), Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// Pause stops the node, like SIGSTOP, until Resume. It has no effect on a node that is not
// running.
func (t *Transport) Pause() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state == running {
		t.state = paused
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
		t.arrive(p, now)
	}
	for _, c := range t.unserved {
		t.conns <- c // connect reserved the room
	}
	t.queue, t.unserved = nil, nil
	for _, c := range t.ends() {
		c.s.wake()
	}
}

// Crash ends the node like kill -9. The code above the transport continues without a network. Shut that code down at
// the end, so that it calls Shutdown.
func (t *Transport) Crash() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state == running || t.state == paused {
		t.detach(crashed)
		t.net.breakStreams(t.takesPart)
	}
}

// Vanish ends the node together with its host, like a power cut, so nothing answers. The code above the transport
// continues as after Crash.
func (t *Transport) Vanish() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state != running && t.state != paused {
		return
	}
	t.detach(vanished)
	t.net.nodes[t.addr] = t
	t.net.loseStreams()
	for _, c := range t.ends() {
		c.shut()
	}
}

// Reset breaks all streams of the node, like a restarted firewall. New streams work.
func (t *Transport) Reset() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	t.net.breakStreams(t.takesPart)
}

func (t *Transport) takesPart(s *stream) bool { return s.ends[0].t == t || s.ends[1].t == t }

// Shutdown removes the node from the network and closes its ends of all streams. The other ends read the
// bytes written before, and then the end of file. Packets already sent still arrive. Shutdown always returns
// nil, and may be called again.
func (t *Transport) Shutdown() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state == running || t.state == paused {
		t.detach(shut)
		for _, c := range t.ends() {
			c.shut()
		}
	}
	if t.state != vanished { // the other nodes do not notice
		t.state = shut
	}
	return nil
}

// detach frees the address and drops the queue. The caller must hold net.mu.
func (t *Transport) detach(to state) {
	t.state = to
	delete(t.net.nodes, t.addr)
	t.queue, t.unserved = nil, nil
	close(t.gone)
}

// ends returns this node's ends of streams. The caller must hold net.mu.
func (t *Transport) ends() (ends []*conn) {
	for _, s := range t.net.streams {
		for _, c := range s.ends {
			if c.t == t {
				ends = append(ends, c)
			}
		}
	}
	return ends
}
