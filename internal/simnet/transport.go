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

	// dialTimeout is what a dial without a timeout of its own waits for an
	// answer: about as long as Linux repeats its SYN.
	dialTimeout = 127 * time.Second
)

type state int

const (
	running state = iota
	paused
	crashed
	shut
)

// Transport is one node's access to a [Network], as memberlist wants it. All
// methods may be called concurrently.
type Transport struct {
	net      *Network
	addr     netip.AddrPort
	udp      *net.UDPAddr
	tcp      *net.TCPAddr
	packets  chan *memberlist.Packet
	conns    chan net.Conn
	gone     chan struct{} // closed by whichever comes first, Crash or Shutdown
	rng      *rand.Rand    // this and all below: guarded by net.mu
	state    state
	queue    []*memberlist.Packet // arrived while paused
	queued   int                  // bytes in queue, as charged
	unserved []*conn              // dialed while paused
	traffic  Traffic
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// Addr returns the address listened on, as host:port.
func (t *Transport) Addr() string { return t.addr.String() }

// FinalAdvertiseAddr returns ip and port if an ip is given, else the address
// listened on.
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

// PacketCh returns the channel of packets that arrived. It is never closed.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the channel of streams that others dialed. It is never closed.
func (t *Transport) StreamCh() <-chan net.Conn { return t.conns }

// DialTimeout opens a stream to addr. It fails at once, with ECONNREFUSED, if
// nobody listens there, and after the timeout, with a [net.Error] whose Timeout
// is true, if nobody answers: across a cut, from a paused node, or when the
// backlog is full. A timeout of 0 stands for 127 s. Crash and Shutdown of t end
// the wait.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = dialTimeout
	}
	if timeout > 0 { // memberlist dials with what is left until a deadline
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

// connect returns a stream, the error that the dial fails with at once, or
// neither if nobody answers.
func (t *Transport) connect(to netip.AddrPort) (*conn, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	dst := n.nodes[to]
	switch {
	case t.state == crashed || t.state == shut:
		return nil, net.ErrClosed
	case t.state == paused || n.apart(t.addr, to):
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
		dst.conns <- far // has room, and n.mu keeps others out
	}
	return near, nil
}

func (t *Transport) dialError(to netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Source: t.tcp, Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// Pause stops the node, as SIGSTOP does, until Resume. It does nothing unless
// the node is running.
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

// Resume lets a paused node go on. What queued meanwhile comes before all that
// arrives later.
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
		t.conns <- c // connect kept room for it
	}
	t.queue, t.queued, t.unserved = nil, 0, nil
	for c := range t.ends() {
		c.setStalled(false)
	}
}

// Crash ends the node, as kill -9 does. What is above keeps running, cut off,
// and should be shut down in the end, which calls Shutdown.
func (t *Transport) Crash() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.state == crashed || t.state == shut {
		return
	}
	t.detach(crashed)
	t.net.breakStreams(func(s *stream) bool { return s.ends[0].t == t || s.ends[1].t == t })
}

// Shutdown takes the node off the network and closes its ends of all streams:
// whoever reads the other end gets what was written before, then the end of
// file. Packets already sent still arrive. It always returns nil, and may be
// called again.
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

// Traffic returns the counters of this node as they are now.
func (t *Transport) Traffic() Traffic {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	return t.traffic
}

// detach makes the address free and drops what waits for it. net.mu is held.
func (t *Transport) detach(to state) {
	t.state = to
	delete(t.net.nodes, t.addr)
	t.net.stats.Dropped.Dead += uint64(len(t.queue))
	t.queue, t.queued, t.unserved = nil, 0, nil
	close(t.gone)
}

// ends yields this node's ends of its streams. net.mu is held.
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
