package gossip

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxStreams bounds the TCP connections that are served at a time. memberlist
// makes room for what a stranger announces (vetHead bounds that) and waits up to
// StreamTimeout for the rest; further connections wait in the kernel's backlog.
const maxStreams = 32

// maxPatience bounds how long a connection that says nothing keeps its slot.
// Nodes of ours speak at once.
const maxPatience = time.Second

// guard stands between the network and memberlist.
type guard struct {
	memberlist.NodeAwareTransport
	// plain says that there is no key: anybody can make memberlist read anything.
	// With one, a message counts only after it was decrypted as a whole.
	plain bool
	// patience is how long an incoming connection may take to say something.
	patience time.Duration

	packets chan *memberlist.Packet
	streams chan net.Conn
	slots   chan struct{}
	ctx     context.Context // ends with Shutdown
	stop    context.CancelFunc
	stopped sync.Once
	wait    sync.WaitGroup
	dropped atomic.Uint64
}

func newGuard(t memberlist.NodeAwareTransport, plain bool, streamTimeout time.Duration) *guard {
	g := &guard{
		NodeAwareTransport: t, plain: plain,
		patience: min(streamTimeout, maxPatience),

		packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn),
		slots:   make(chan struct{}, maxStreams),
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.wait.Go(g.passPackets)
	g.wait.Go(g.passStreams)
	return g
}

func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *guard) StreamCh() <-chan net.Conn           { return g.streams }

// DialAddressTimeout is the transport's, but Shutdown ends it at once, and what
// came of it: a join under way must not hold up the end of the program.
func (g *guard) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := g.NodeAwareTransport.DialAddressTimeout(to, timeout)
		dialed <- result{conn, err}
	}()
	select {
	case r := <-dialed:
		if r.err != nil {
			return nil, r.err
		}
		// Strangers can make memberlist call them: their answers are vetted, too.
		return g.closeAtEnd(g.vet(r.conn, 0)), nil
	case <-g.ctx.Done():
		go func() {
			if r := <-dialed; r.err == nil {
				_ = r.conn.Close()
			}
		}()
		return nil, net.ErrClosed
	}
}

// closeAtEnd returns conn, which Shutdown closes if nobody did before.
func (g *guard) closeAtEnd(conn net.Conn) net.Conn {
	forget := context.AfterFunc(g.ctx, func() { _ = conn.Close() })
	return &hookedConn{Conn: conn, closed: func() { forget() }}
}

// Shutdown closes the sockets. Their readers may be waiting to hand over, so
// somebody has to take what they hold.
func (g *guard) Shutdown() (err error) {
	g.stopped.Do(func() {
		g.stop()
		g.wait.Wait()
		closed := make(chan struct{})
		g.wait.Go(func() { g.discard(closed) })
		err = g.NodeAwareTransport.Shutdown()
		close(closed)
		g.wait.Wait()
	})
	return err
}

func (g *guard) discard(until <-chan struct{}) {
	for {
		select {
		case <-g.NodeAwareTransport.PacketCh():
		case conn := <-g.NodeAwareTransport.StreamCh():
			_ = conn.Close()
		case <-until:
			return
		}
	}
}

func (g *guard) passPackets() {
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			if g.plain && !harmless(p.Buf) {
				g.dropped.Add(1)
				continue
			}
			select {
			case g.packets <- p:
			case <-g.ctx.Done():
				return
			}
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *guard) passStreams() {
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.ctx.Done():
			return
		}
		select {
		case conn := <-g.NodeAwareTransport.StreamCh():
			limited := &hookedConn{Conn: g.vet(conn, g.patience), closed: func() { <-g.slots }}
			select {
			case g.streams <- limited:
			case <-g.ctx.Done():
				_ = conn.Close()
				return
			}
		case <-g.ctx.Done():
			return
		}
	}
}

// hookedConn tells when it is closed.
type hookedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *hookedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// Message types of memberlist's packets.
const (
	typeCompound = 7
	typeCompress = 9
	typeChecksum = 12
)

// harmless reports whether a packet can be unpacked in one step. Nobody here
// sends compressed packets or compounds of compounds, and unpacking them can
// cost a stranger's 64 KiB into 40 MiB, again and again.
func harmless(b []byte) bool {
	b, _, err := memberlist.RemoveLabelHeaderFromPacket(b)
	if err != nil {
		return false
	}
	if len(b) >= 5 && b[0] == typeChecksum {
		b = b[5:]
	}
	if len(b) == 0 || b[0] != typeCompound {
		return len(b) > 0 && b[0] != typeCompress
	}
	return harmlessParts(b)
}

// harmlessParts judges a compound.
func harmlessParts(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	parts := int(b[1])
	if b = b[2:]; len(b) < 2*parts {
		return false
	}
	sizes, b := b[:2*parts], b[2*parts:]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		size := int(sizes[0])<<8 | int(sizes[1])
		if size == 0 || size > len(b) || b[0] == typeCompound || b[0] == typeCompress {
			return false
		}
		b = b[size:]
	}
	return true
}
