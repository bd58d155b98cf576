package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// maxHeadTimeout bounds how long a connection may take to send its hello, and then the head of its message. Agents send
// both at once.
const maxHeadTimeout = time.Second

var errUnconfirmed = errors.New("gossip: no live lease at that address")

// guard stands between the network and memberlist.
type guard struct {
	memberlist.NodeAwareTransport
	ring       *firewall.Ring
	label      string
	labelHead  []byte // of each packet of this cluster
	strict     bool   // memberlist refuses plain text, since the start
	rejections *firewall.Rejections
	// headTimeout is how long an incoming connection may take to send its hello, and then its head,
	// streamTimeout how long until its message is complete.
	headTimeout, streamTimeout time.Duration

	self        func() Peer
	meet        func(Peer) error // decides about who answers where memberlist dials a member
	joins       sync.Map         // of *joining, by name
	credentials atomic.Pointer[credentials]
	changing    sync.Mutex // of the keys
	places      *admission
	watched     watched
	unconfirmed *firewall.Unconfirmed

	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends at Shutdown
	stop    context.CancelFunc
	stopped sync.Once
	wait    sync.WaitGroup
	dropped atomic.Uint64
}

func newGuard(t memberlist.NodeAwareTransport, cfg *Config, ring *firewall.Ring, r *firewall.Rejections) *guard {
	g := &guard{
		NodeAwareTransport: t, ring: ring, label: cfg.Cluster, labelHead: labelHead(cfg.Cluster), rejections: r,
		headTimeout: min(cfg.StreamTimeout, maxHeadTimeout), streamTimeout: cfg.StreamTimeout,
		self:        cfg.Self,
		meet:        cfg.Meet,
		unconfirmed: firewall.NewUnconfirmed(cfg.Live),

		packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn),
	}
	g.credentials.Store(newCredentials(cfg.Cluster, cfg.Key, cfg.OldKeys))
	g.strict = !g.credentials.Load().TakesPlain
	g.places = newAdmission(&g.dropped)
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.wait.Go(g.passPackets)
	g.wait.Go(g.passStreams)
	return g
}

// setKeys replaces all keys. Each step leaves a node that understands messages that are under way.
func (g *guard) setKeys(key []byte, old [][]byte) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	was, next := g.credentials.Load(), newCredentials(g.label, key, old)
	for _, k := range next.Secrets {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	switch {
	case was.SendsPlain && !next.TakesPlain:
		return ErrPlain
	case next.SendsPlain && !was.SendsPlain, next.TakesPlain && !was.TakesPlain && g.strict:
		return ErrSealed
	}
	if err := g.ring.Widen(next.Keys); err != nil {
		return err
	}
	g.credentials.Store(next)
	g.ring.Narrow(next.Keys)
	return nil
}

func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *guard) StreamCh() <-chan net.Conn           { return g.streams }

// WriteToAddress is the transport's, but what exceeds the bounds of unconfirmed addresses is lost.
func (g *guard) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	g.ring.CountSealed()
	if now := time.Now(); !g.unconfirmed.Allows(to, len(b), now) {
		return now, nil
	}
	return g.NodeAwareTransport.WriteToAddress(b, to)
}

// DialAddressTimeout is the transport's, but Shutdown ends the call and closes the
// connection: a running join must not delay the end of the program.
func (g *guard) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	join := &joining{meet: g.meet}
	if j, ok := g.joins.Load(to.Name); ok {
		join = j.(*joining)
		to = memberlist.Address{Addr: join.addr} // memberlist drops the zone of a link-local address
	}
	if !g.unconfirmed.AllowsStream(to, time.Now()) {
		return nil, errUnconfirmed
	}
	until := time.Now().Add(timeout)
	conn, err := g.dial(to, timeout)
	if err != nil {
		return nil, err
	}
	// An unauthenticated sender can make memberlist dial: vet the answer, too.
	vetted := g.vet(conn)
	open := g.closeAtEnd(&hookedConn{Conn: vetted, closed: vetted.place.leave})
	if join.err = g.greet(vetted, join.meet, until); join.err != nil {
		_ = open.Close()
		return nil, join.err
	}
	return open, nil
}

// joining is a call of Join. memberlist hands its name to the guard, and returns no error that can be inspected.
type joining struct {
	addr string
	meet func(Peer) error
	err  error
}

// greet says hello, and asks meet about who answers.
func (g *guard) greet(c *vettedConn, meet func(Peer) error, until time.Time) error {
	p, err := g.hello(c, until)
	if err != nil || meet == nil {
		return err
	}
	return meet(p)
}

// dial is the transport's, but Shutdown ends the call.
func (g *guard) dial(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
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
		return r.conn, r.err
	case <-g.ctx.Done():
		go func() {
			if r := <-dialed; r.err == nil {
				_ = r.conn.Close()
			}
		}()
		return nil, net.ErrClosed
	}
}

// closeAtEnd returns a conn that Shutdown closes if it is still open.
func (g *guard) closeAtEnd(conn net.Conn) net.Conn {
	forget := context.AfterFunc(g.ctx, func() { _ = conn.Close() })
	return &hookedConn{Conn: conn, closed: func() { forget() }}
}

// Shutdown closes the sockets. It discards further input, so that no socket reader
// blocks.
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
	var opened []byte // memory for the content of a packet
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			var admitted bool
			if admitted, opened = g.admits(p, opened); !admitted {
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
		case conn := <-g.NodeAwareTransport.StreamCh():
			p := g.places.enter(g.ctx, conn, g.streamTimeout)
			if p == nil {
				_ = conn.Close()
				return
			}
			g.wait.Go(func() { g.passStream(p) })
		case <-g.ctx.Done():
			return
		}
	}
}

// passStream gives a stream to memberlist once its message is complete, or holds it if a
// watcher opened it. A watch stream gives its place back after the handshake.
func (g *guard) passStream(p *place) {
	forget := context.AfterFunc(g.ctx, func() { _ = p.conn.Close() })
	vetted := g.vetIncoming(p)
	p.begin()
	if vetted.check(); vetted.watch {
		defer forget()
		g.serveWatcher(vetted, p.leave)
		return
	}
	forget()
	if vetted.err == nil {
		vetted.err = p.move(g.ctx, &g.places.served, g.places.costs(len(vetted.message), vetted.nodes), len(vetted.message))
	}
	if vetted.err == nil {
		select {
		case g.streams <- &hookedConn{Conn: vetted, closed: p.leave}:
			return
		case <-g.ctx.Done():
		}
	}
	p.leave()
	if errors.Is(vetted.err, os.ErrDeadlineExceeded) || errors.Is(vetted.err, errEvicted) {
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

// labelHead returns the first bytes of each packet and stream of a cluster.
func labelHead(cluster string) []byte {
	if cluster == "" {
		return nil
	}
	return append([]byte{typeLabel, byte(len(cluster))}, cluster...)
}

// admits reports whether memberlist may see a packet, and counts the others. The content goes into memory that the next
// call uses again.
func (g *guard) admits(p *memberlist.Packet, memory []byte) (admitted bool, _ []byte) {
	content, ours := bytes.CutPrefix(p.Buf, g.labelHead)
	if !ours {
		if _, cluster, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf); err == nil {
			g.rejections.Note(WrongCluster, firewall.UDP, firewall.AddrPort(p.From), cluster)
		} else {
			g.dropped.Add(1)
		}
		return false, memory
	}
	return g.admitsContent(p, content, memory)
}

// admitsContent is admits for a packet of this cluster, without its label.
func (g *guard) admitsContent(p *memberlist.Packet, content, memory []byte) (admitted bool, _ []byte) {
	now := g.ring.Now()
	switch opened, ok := now.Open(memory[:0], content, []byte(g.label)); {
	case ok && firewall.Padded(content), !ok && now.TakesPlain && !firewall.Harmless(p.Buf):
		g.dropped.Add(1)
		return false, memory
	case ok && now.SendsPlain: // memberlist has no key
		p.Buf = slices.Concat(g.labelHead, opened)
		return true, opened
	case ok:
		return true, opened
	case now.TakesPlain:
		return true, memory
	default:
		g.rejections.Note(WrongKey, firewall.UDP, firewall.AddrPort(p.From), "")
		return false, memory
	}
}
