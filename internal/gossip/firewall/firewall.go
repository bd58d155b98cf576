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

// Config is what the rules need to know.
type Config struct {
	Label      string // of each packet and stream of this cluster, at most 255 bytes
	Ring       *Ring
	Rejections *Rejections

	// HeadTimeout is how long an incoming stream may take to begin, StreamTimeout how long until its message is complete.
	HeadTimeout, StreamTimeout time.Duration

	// Live reports whether a node with a live lease is at an ip:port; nil = one is. It must not block.
	Live func(addr string) bool

	// Incoming gets each incoming stream before the firewall reads it, and may take it. Then the stream never reaches
	// memberlist, and ends when Incoming returns. An error closes a stream that is not taken, too; one that wraps ErrHead, or
	// a deadline that passed, is counted in Dropped. The goroutine of the stream calls Incoming.
	Incoming func(*Stream) (taken bool, err error)

	// Outgoing is asked about each stream that memberlist opens: where to open it, and what to say and hear before
	// memberlist does, until a deadline. An error of greet closes the stream, and is what memberlist gets.
	Outgoing func(to memberlist.Address) (at memberlist.Address, greet func(*Stream, time.Time) error)
}

// Firewall is memberlist's transport over another one. It passes only what the rules allow.
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

// New returns a firewall in front of a transport. Shutdown ends both.
func New(t memberlist.NodeAwareTransport, cfg Config) *Firewall {
	labelHead, _ := memberlist.AddLabelHeaderToPacket(nil, cfg.Label) // fails for no label of at most 255 bytes
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

// SetOwn says which IP address this node has. What goes there is not bounded, because many agents may run on one host.
func (f *Firewall) SetOwn(ip netip.Addr) { f.unconfirmed.setOwn(ip) }

// Dropped returns how many packets and streams of no agent the rules dropped, and how many streams had to make room. It
// does not count what Rejections counts.
func (f *Firewall) Dropped() uint64 { return f.dropped.Load() }

// PacketCh implements memberlist.Transport.
func (f *Firewall) PacketCh() <-chan *memberlist.Packet { return f.packets }

// StreamCh implements memberlist.Transport.
func (f *Firewall) StreamCh() <-chan net.Conn { return f.streams }

// WriteToAddress is the transport's, but what exceeds the bounds of unconfirmed addresses is lost.
func (f *Firewall) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	f.cfg.Ring.countSealed()
	if now := time.Now(); !f.unconfirmed.allows(to, len(b), now) {
		return now, nil
	}
	return f.NodeAwareTransport.WriteToAddress(b, to)
}

// DialAddressTimeout is the transport's, but Shutdown ends the call and closes the
// connection: a running join must not delay the end of the program.
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
	// An unauthenticated sender can make memberlist dial: check the answer, too.
	s := f.stream(f.places.outgoing(conn), false)
	open := f.closeAtEnd(&hookedConn{Conn: s, closed: s.place.leave})
	if err := s.lend(func() error { return greet(s, until) }); err != nil {
		_ = open.Close()
		return nil, err
	}
	return open, nil
}

// Dial opens a connection that memberlist does not know, and that no rule bounds. The call ends with ctx, and at Shutdown.
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

// Shutdown closes the sockets. It discards further input, so that no socket reader
// blocks.
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
	var opened []byte // memory for the content of a packet
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

// passStream gives a stream to memberlist once its message is complete, unless Config.Incoming takes it.
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

// hookedConn calls closed when it is closed.
type hookedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *hookedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// admits reports whether memberlist may see a packet, and counts the others. The content goes into memory that the next
// call uses again.
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

// admitsContent is admits for a packet of this cluster, without its label.
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
