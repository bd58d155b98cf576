package simnet

import (
	"container/heap"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	packetDepth = 4096  // packets that a running node has not read yet
	maxPacket   = 65507 // bytes; the limit of UDP over IPv4

	// A paused node's packets wait in a queue that stands for the socket buffer of its
	// kernel: the 2 MiB that memberlist requests. The kernel also charges its
	// bookkeeping, which is most of the cost of a small packet. So the queue always fits
	// into the channel that receives it on Resume.
	queueBytes     = 2 << 20
	packetOverhead = 768
)

// flight is a packet in flight.
type flight struct {
	at       time.Time // of arrival
	seq      uint64    // breaks ties: a bubble fires timers of one instant in random order
	from, to netip.AddrPort
	packet   *memberlist.Packet
}

// wire is the heap of packets in flight, next arrival first.
type wire []*flight

func (w wire) Len() int      { return len(w) }
func (w wire) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *wire) Push(x any)   { *w = append(*w, x.(*flight)) }

func (w wire) Less(i, j int) bool {
	if c := w[i].at.Compare(w[j].at); c != 0 {
		return c < 0
	}
	return w[i].seq < w[j].seq
}

func (w *wire) Pop() any {
	last := len(*w) - 1
	f := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return f
}

// send puts a packet of t on the wire. n.mu is held.
func (n *Network) send(t *Transport, to netip.AddrPort, buf []byte, now time.Time) {
	n.stats.PacketsSent++
	n.stats.BytesSent += uint64(len(buf))
	t.traffic.PacketsSent++
	t.traffic.BytesSent += uint64(len(buf))

	// Drawn for every packet, so that neither a cut nor a change of settings shifts
	// the draws of later packets.
	lost, jitter := t.rng.Float64() < n.cfg.Loss, t.rng.Float64()
	switch {
	case n.isCut(t.addr, to):
		n.stats.Dropped.Cut++
		return
	case lost:
		n.stats.Dropped.Loss++
		return
	}

	n.sent++
	delay := n.cfg.Delay + time.Duration(jitter*float64(n.cfg.Jitter))
	f := &flight{
		at: now.Add(delay), seq: n.sent, from: t.addr, to: to,
		packet: &memberlist.Packet{Buf: append([]byte(nil), buf...), From: t.udp},
	}
	heap.Push(&n.wire, f)
	if n.wire[0] != f {
		return // the timer is set for an earlier arrival
	}
	if n.timer == nil {
		n.timer = time.AfterFunc(delay, n.land)
	} else {
		n.timer.Reset(delay)
	}
}

// land delivers the packets that are due, and sets the timer for the next arrival.
func (n *Network) land() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(n.wire) > 0 {
		if wait := n.wire[0].at.Sub(now); wait > 0 {
			n.timer.Reset(wait)
			return
		}
		n.arrive(heap.Pop(&n.wire).(*flight), now)
	}
}

func (n *Network) arrive(f *flight, now time.Time) {
	t := n.nodes[f.to]
	switch {
	case n.isCut(f.from, f.to):
		n.stats.Dropped.Cut++
	case t == nil:
		n.stats.Dropped.NoListener++
	case t.state == paused:
		t.enqueue(f.packet)
	default:
		t.deliver(f.packet, now)
	}
}

func (t *Transport) enqueue(p *memberlist.Packet) {
	charge := len(p.Buf) + packetOverhead
	if t.queued+charge > queueBytes {
		t.net.stats.Dropped.Overflow++
		return
	}
	t.queued += charge
	t.queue = append(t.queue, p)
}

func (t *Transport) deliver(p *memberlist.Packet, now time.Time) {
	p.Timestamp = now
	select {
	case t.packets <- p:
		t.net.stats.PacketsDelivered++
		t.traffic.PacketsReceived++
		t.traffic.BytesReceived += uint64(len(p.Buf))
	default:
		t.net.stats.Dropped.Overflow++
	}
}

// WriteTo sends a packet of at most 65,507 bytes to addr. As with UDP, the packet may be
// lost even if the error is nil.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return time.Time{}, err
	}
	if len(b) > maxPacket {
		return time.Time{}, t.packetError(to, syscall.EMSGSIZE)
	}
	now := time.Now()

	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	switch t.state {
	case running:
		t.net.send(t, to, b, now)
	case paused, crashed:
		t.net.stats.Muted++
	case shut:
		return time.Time{}, t.packetError(to, net.ErrClosed)
	}
	return now, nil
}

// WriteToAddress is [Transport.WriteTo]; it ignores the name.
func (t *Transport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

func (t *Transport) packetError(to netip.AddrPort, err error) error {
	return &net.OpError{Op: "write", Net: "udp", Source: t.udp, Addr: net.UDPAddrFromAddrPort(to), Err: err}
}
