package simnet

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Config sets how a [Network] treats packets. The zero value is a perfect network.
type Config struct {
	Seed   uint64        // seed of all losses and jitter
	Delay  time.Duration // one-way delay of every packet; 0 = it arrives at the same instant
	Jitter time.Duration // added to Delay: uniform in [0, Jitter), so it reorders packets
	Loss   float64       // share of packets lost, from 0 to 1
}

// Network connects transports. All methods may be called concurrently. An address is an IP address and port
// such as "10.0.0.1:7946". Methods that cut panic if an address is invalid, so that a test cannot rely on a
// fault that it has not injected.
type Network struct {
	mu      sync.Mutex // guards all state of the package
	cfg     Config
	nodes   map[netip.AddrPort]*Transport
	cuts    map[link]bool
	lossOf  map[netip.AddrPort]loss
	streams []*stream   // in order of dialing, so that faults break them in a fixed order
	flights []flight    // packets in flight, next arrival first
	timer   *time.Timer // fires at the next arrival; created by the first packet, inside the bubble
}

// link is one direction between two addresses.
type link struct{ from, to netip.AddrPort }

// loss is the share of packets lost on the way out of an address, and into it.
type loss struct{ out, in float64 }

// New returns a network without nodes.
func New(cfg Config) *Network {
	return &Network{
		cfg: cfg, nodes: make(map[netip.AddrPort]*Transport),
		cuts: make(map[link]bool), lossOf: make(map[netip.AddrPort]loss),
	}
}

// Listen attaches a node at addr. It fails with EADDRINUSE while another transport has the address. A transport no
// longer has its address after it has crashed, vanished or shut down. A new node resets the streams to a vanished node
// with the same address.
func (n *Network) Listen(addr string) (*Transport, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("simnet: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(addr)) // a hash does not fail

	n.mu.Lock()
	defer n.mu.Unlock()
	t := &Transport{
		net:     n,
		addr:    at,
		packets: make(chan *memberlist.Packet, packetDepth),
		conns:   make(chan net.Conn, backlog),
		gone:    make(chan struct{}),
		rng:     rand.New(rand.NewPCG(n.cfg.Seed, h.Sum64())),
	}
	if old := n.nodes[at]; old != nil {
		if old.state != vanished {
			return nil, t.opError("listen", "udp", at, syscall.EADDRINUSE)
		}
		n.breakStreams(old.takesPart)
	}
	n.nodes[at] = t
	return t, nil
}

// SetLoss sets the share of packets lost, from 0 to 1, for later packets.
func (n *Network) SetLoss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Loss = share
}

// SetLossOf sets the share of packets that are additionally lost on the way out of an address and into it.
func (n *Network) SetLossOf(addr string, out, in float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lossOf[netip.MustParseAddrPort(addr)] = loss{out, in}
}

// CutOneWay drops packets from one address to another, and breaks streams between them.
// Packets in the other direction still arrive.
func (n *Network) CutOneWay(from, to string) {
	n.cut(link{netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)})
}

// Split cuts every pair of addresses in different groups, in addition to earlier cuts.
// An address that is in no group still reaches all other addresses.
func (n *Network) Split(groups ...[]string) {
	var links []link
	for i, group := range groups {
		others := slices.Concat(groups[i+1:]...)
		for _, a := range group {
			for _, b := range others {
				x, y := netip.MustParseAddrPort(a), netip.MustParseAddrPort(b)
				links = append(links, link{x, y}, link{y, x})
			}
		}
	}
	n.cut(links...)
}

// HealAll removes all cuts and splits.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
	n.loseStreams()
}

func (n *Network) cut(links ...link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		n.cuts[l] = true
	}
	n.breakStreams(func(s *stream) bool { return !n.carries(s) && !s.keptAlive() })
	n.loseStreams()
}

// loseStreams records which streams become silent, and which are no longer silent. The caller must hold n.mu.
func (n *Network) loseStreams() {
	for _, s := range n.streams {
		switch works := n.carries(s); {
		case works && !s.lost.IsZero():
			s.lost = time.Time{}
		case !works && s.lost.IsZero():
			s.lost = time.Now()
		default:
			continue
		}
		s.wake()
	}
}

// carries reports whether the network carries the bytes of a stream.
func (n *Network) carries(s *stream) bool {
	a, b := s.ends[0].t, s.ends[1].t
	return a.state != vanished && b.state != vanished && !n.separated(a.addr, b.addr)
}

// separated reports whether no stream can exist between a and b.
func (n *Network) separated(a, b netip.AddrPort) bool {
	return n.cuts[link{a, b}] || n.cuts[link{b, a}]
}

// breakStreams resets the streams for which which returns true. Their unread bytes are lost. The caller must
// hold n.mu.
func (n *Network) breakStreams(which func(*stream) bool) {
	n.streams = slices.DeleteFunc(n.streams, func(s *stream) bool {
		if !which(s) {
			return false
		}
		s.broken = true
		s.wake()
		return true
	})
}

// flight is a packet in flight.
type flight struct {
	at time.Time // time of arrival
	link
	packet *memberlist.Packet
}

// send puts a packet of t in flight. The caller must hold n.mu.
func (n *Network) send(t *Transport, to netip.AddrPort, b []byte, now time.Time) {
	// Draw these for every packet, so that no fault changes the draws of later packets.
	fate, jitter := t.rng.Float64(), t.rng.Float64()
	l := link{t.addr, to}
	arrive := (1 - n.cfg.Loss) * (1 - n.lossOf[l.from].out) * (1 - n.lossOf[l.to].in)
	if fate < 1-arrive || n.cuts[l] {
		return
	}
	delay := n.cfg.Delay + time.Duration(jitter*float64(n.cfg.Jitter))
	f := flight{
		at: now.Add(delay), link: l,
		packet: &memberlist.Packet{Buf: slices.Clone(b), From: net.UDPAddrFromAddrPort(t.addr)},
	}
	// Insert the packet after packets that are due at the same instant, because a bubble fires timers of the same
	// instant in random order.
	i, _ := slices.BinarySearchFunc(n.flights, f, func(other, f flight) int {
		if other.at.After(f.at) {
			return 1
		}
		return -1
	})
	n.flights = slices.Insert(n.flights, i, f)
	switch {
	case n.timer == nil:
		n.timer = time.AfterFunc(delay, n.land)
	case i == 0:
		n.timer.Reset(delay)
	}
}

// land delivers the packets that are due, and sets the timer for the next arrival.
func (n *Network) land() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(n.flights) > 0 {
		f := n.flights[0]
		if wait := f.at.Sub(now); wait > 0 {
			n.timer.Reset(wait)
			return
		}
		n.flights = n.flights[1:]
		if t := n.nodes[f.to]; t != nil && !n.cuts[f.link] {
			t.arrive(f.packet, now)
		}
	}
}
