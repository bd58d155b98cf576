package firewall

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

var errUnconfirmed = errors.New("gossip: no live lease at that address")

// Config configures a Firewall.
type Config struct {
	Label      string // of each packet and stream of this cluster, at most 255 bytes
	Ring       *Ring
	Rejections *Rejections

	// HeadTimeout is how long the head of an incoming stream may take to arrive. StreamTimeout is how long
	// the complete message of an incoming stream may take.
	HeadTimeout, StreamTimeout time.Duration

	// Live reports whether a node with a live lease is at an ip:port. nil means that all addresses are
	// considered live. Live must not block.
	Live func(addr string) bool

	// Incoming is called by the goroutine of each incoming stream before the firewall reads the stream.
	// Incoming may take over the stream. In that case the stream never reaches memberlist, and is closed when
	// Incoming returns. If Incoming returns an error, the stream is closed even if Incoming has not taken it
	// over. An error that wraps ErrHead, or that is an expired deadline, is counted in Dropped.
	Incoming func(*Stream) (taken bool, err error)

	// Outgoing is called for each stream that memberlist opens. It returns the address to dial and the
	// function greet. Before memberlist uses the stream, greet may send and receive data until the given
	// deadline. If greet returns an error, the stream is closed and memberlist gets the error.
	Outgoing func(to memberlist.Address) (at memberlist.Address, greet func(*Stream, time.Time) error)
}

// Firewall is a memberlist transport that wraps another transport, and only passes what the rules allow.
type Firewall struct {
	memberlist.NodeAwareTransport
	cfg         Config
	labelHead   []byte // of each packet
	unconfirmed *unconfirmed
	places      *admission
	dropped     atomic.Uint64

	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends at Shutdown
	stop    context.CancelFunc
	stopped sync.Once
	wait    sync.WaitGroup
}

// New returns a firewall in front of a transport. Shutdown stops both.
func New(t memberlist.NodeAwareTransport, cfg Config) *Firewall {
	labelHead, _ := memberlist.AddLabelHeaderToPacket(nil, cfg.Label) // cannot fail for a label of at most 255 bytes
	f := &Firewall{
		NodeAwareTransport: t, cfg: cfg, labelHead: labelHead, unconfirmed: newUnconfirmed(cfg.Live),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	f.places = newAdmission(&f.dropped)
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.wait.Go(f.passPackets)
	f.wait.Go(f.passStreams)
	return f
}

// SetOwn sets the IP address of this node. Packets to this address are not limited, because many agents may
// run on one host.
func (f *Firewall) SetOwn(ip netip.Addr) { f.unconfirmed.setOwn(ip) }

// Dropped returns how many packets and streams the rules dropped because they did not come from an agent, and
// how many streams were closed to make room for others. It does not include packets and streams that
// Rejections counts.
func (f *Firewall) Dropped() uint64 { return f.dropped.Load() }

// PacketCh implements memberlist.Transport.
func (f *Firewall) PacketCh() <-chan *memberlist.Packet { return f.packets }

// StreamCh implements memberlist.Transport.
func (f *Firewall) StreamCh() <-chan net.Conn { return f.streams }

// WriteToAddress calls the wrapped transport, but drops packets that exceed the limits for unconfirmed
// addresses.
func (f *Firewall) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	f.cfg.Ring.countSealed()
	if now := time.Now(); !f.unconfirmed.allows(to, len(b), now) {
		return now, nil
	}
	return f.NodeAwareTransport.WriteToAddress(b, to)
}

// DialAddressTimeout calls the wrapped transport. Shutdown aborts the call and closes the connection, so that
// a running join does not delay the end of the process.
func (f *Firewall) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to, greet := f.cfg.Outgoing(to)
	if !f.unconfirmed.allowsStream(to, time.Now()) {
		return nil, errUnconfirmed
	}
	until := time.Now().Add(timeout)
	conn, err := f.Dial(f.ctx, to, timeout)
	if err != nil {
		return nil, err
	}
	// An unauthenticated sender can make memberlist dial any address, so the answer must be checked as well.
	s := f.stream(f.places.outgoing(conn), false)
	open := f.closeAtEnd(&hookedConn{Conn: s, closed: s.place.leave})
	if err := s.lend(func() error { return greet(s, until) }); err != nil {
		_ = open.Close()
		return nil, err
	}
	return open, nil
}

// Dial opens a connection that bypasses memberlist and the rules. The call is aborted when ctx is done, and
// at Shutdown.
func (f *Firewall) Dial(ctx context.Context, to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := f.NodeAwareTransport.DialAddressTimeout(to, timeout)
		dialed <- result{conn, err}
	}()
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	go func() {
		if r := <-dialed; r.err == nil {
			_ = r.conn.Close()
		}
	}()
	return nil, net.ErrClosed
}

// closeAtEnd returns a conn that Shutdown closes if it is still open.
func (f *Firewall) closeAtEnd(conn net.Conn) net.Conn {
	forget := context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	return &hookedConn{Conn: conn, closed: func() { forget() }}
}

// Shutdown closes the sockets. It discards further input so that the socket readers do not block.
func (f *Firewall) Shutdown() (err error) {
	f.stopped.Do(func() {
		f.stop()
		f.wait.Wait()
		closed := make(chan struct{})
		f.wait.Go(func() { f.discard(closed) })
		err = f.NodeAwareTransport.Shutdown()
		close(closed)
		f.wait.Wait()
	})
	return err
}

func (f *Firewall) discard(until <-chan struct{}) {
	for {
		select {
		case <-f.NodeAwareTransport.PacketCh():
		case conn := <-f.NodeAwareTransport.StreamCh():
			_ = conn.Close()
		case <-until:
			return
		}
	}
}

func (f *Firewall) passPackets() {
	var opened []byte // memory for the decrypted content of a packet
	for {
		select {
		case p := <-f.NodeAwareTransport.PacketCh():
			var admitted bool
			if admitted, opened = f.admits(p, opened); !admitted {
				continue
			}
			select {
			case f.packets <- p:
			case <-f.ctx.Done():
				return
			}
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *Firewall) passStreams() {
	for {
		select {
		case conn := <-f.NodeAwareTransport.StreamCh():
			p := f.places.enter(f.ctx, conn, f.cfg.StreamTimeout)
			if p == nil {
				_ = conn.Close()
				return
			}
			f.wait.Go(func() { f.passStream(p) })
		case <-f.ctx.Done():
			return
		}
	}
}

// passStream passes a stream to memberlist once its message is complete, unless Config.Incoming takes the
// stream.
func (f *Firewall) passStream(p *place) {
	forget := context.AfterFunc(f.ctx, func() { _ = p.conn.Close() })
	s := f.stream(p, true)
	p.begin()
	s.check()
	forget()
	if s.err == nil && !s.taken {
		s.err = p.move(f.ctx, &f.places.served, f.places.costs(len(s.message), s.nodes), len(s.message))
		if s.err == nil {
			select {
			case f.streams <- &hookedConn{Conn: s, closed: p.leave}:
				return
			case <-f.ctx.Done():
			}
		}
	}
	p.leave()
	if !s.taken && (errors.Is(s.err, os.ErrDeadlineExceeded) || errors.Is(s.err, ErrEvicted)) {
		p.closeBusy()
		return
	}
	_ = p.conn.Close()
}

// hookedConn calls the function closed when the connection is closed.
type hookedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *hookedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// admits reports whether memberlist may receive a packet, and counts rejected packets. It decrypts the
// content into the given memory, and returns this memory so that the next call can reuse it.
func (f *Firewall) admits(p *memberlist.Packet, memory []byte) (admitted bool, _ []byte) {
	content, ours := bytes.CutPrefix(p.Buf, f.labelHead)
	if !ours {
		if _, cluster, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf); err == nil {
			f.cfg.Rejections.note(WrongCluster, UDP, addrPort(p.From), cluster)
		} else {
			f.dropped.Add(1)
		}
		return false, memory
	}
	return f.admitsContent(p, content, memory)
}

// admitsContent is like admits, but for a packet of this cluster whose label has been removed.
func (f *Firewall) admitsContent(p *memberlist.Packet, content, memory []byte) (admitted bool, _ []byte) {
	now := f.cfg.Ring.accepts.Load()
	switch opened, ok := now.open(memory[:0], content, []byte(f.cfg.Label)); {
	case ok && padded(content), !ok && now.TakesPlain && !harmless(p.Buf):
		f.dropped.Add(1)
		return false, memory
	case ok && now.SendsPlain: // memberlist has no key
		p.Buf = slices.Concat(f.labelHead, opened)
		return true, opened
	case ok:
		return true, opened
	case now.TakesPlain:
		return true, memory
	default:
		f.cfg.Rejections.note(WrongKey, UDP, addrPort(p.From), "")
		return false, memory
	}
}
