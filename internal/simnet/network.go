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
	Seed   uint64        // of all losses and jitter; equal seeds give equal draws
	Delay  time.Duration // of every packet, one way; 0 = it arrives at the same instant
	Jitter time.Duration // added to Delay: uniform in [0, Jitter), so it reorders packets
	Loss   float64       // share of packets lost, from 0 to 1
}

// Network connects transports. All methods may be called concurrently. Methods with
// addresses as host:port panic on a malformed one: a test must not believe in a fault
// that it has not injected.
type Network struct {
	mu      sync.Mutex // taken before a stream's mutex, never after it
	cfg     Config
	nodes   map[netip.AddrPort]*Transport
	listens map[netip.AddrPort]uint64 // number of transports created per address
	cuts    map[link]struct{}
	streams []*stream // in order of dialing, so that faults break them in a fixed order
	wire    wire
	sent    uint64      // sequence number of the last packet sent
	timer   *time.Timer // of the next arrival; created by the first packet, inside the bubble
	stats   Stats
}

// link is one direction between two addresses.
type link struct{ from, to netip.AddrPort }

// New returns a network without nodes.
func New(cfg Config) *Network {
	return &Network{
		cfg:     cfg,
		nodes:   make(map[netip.AddrPort]*Transport),
		listens: make(map[netip.AddrPort]uint64),
		cuts:    make(map[link]struct{}),
	}
}

// Listen attaches a node at addr, an IP address and port such as "10.0.0.1:7946". It
// fails with EADDRINUSE while another transport has the address. A transport that
// crashed or was shut down does not.
func (n *Network) Listen(addr string) (*Transport, error) {
	at, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if at.Port() == 0 || at.Addr().IsUnspecified() {
		return nil, fmt.Errorf("simnet: listen on %q: address and port must be given", addr)
	}
	t := &Transport{
		net:     n,
		addr:    at,
		udp:     net.UDPAddrFromAddrPort(at),
		tcp:     net.TCPAddrFromAddrPort(at),
		packets: make(chan *memberlist.Packet, packetDepth),
		conns:   make(chan net.Conn, backlog),
		gone:    make(chan struct{}),
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Addr: t.udp, Err: syscall.EADDRINUSE}
	}
	n.listens[at]++
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, at, n.listens[at]) // a hash does not fail
	t.rng = rand.New(rand.NewPCG(n.cfg.Seed, h.Sum64()))
	n.nodes[at] = t
	return t, nil
}

// SetLoss sets the share of packets lost, from 0 to 1, for later packets.
func (n *Network) SetLoss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Loss = share
}

// SetDelay sets delay and jitter, as in [Config], for later packets.
func (n *Network) SetDelay(delay, jitter time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Delay, n.cfg.Jitter = delay, jitter
}

// Cut separates a and b, in both directions.
func (n *Network) Cut(a, b string) { n.cut(both(a, b)...) }

// CutOneWay drops packets from one address to another, and breaks streams between them.
// Packets in the other direction still arrive.
func (n *Network) CutOneWay(from, to string) {
	n.cut(link{mustAddr(from), mustAddr(to)})
}

// Split cuts every pair of addresses in different groups, in addition to earlier cuts.
// An address in no group still reaches all others.
func (n *Network) Split(groups ...[]string) {
	var links []link
	for i, group := range groups {
		for _, a := range group {
			for _, other := range groups[i+1:] {
				for _, b := range other {
					links = append(links, both(a, b)...)
				}
			}
		}
	}
	n.cut(links...)
}

// Heal removes all cuts between a and b.
func (n *Network) Heal(a, b string) {
	links := both(a, b)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		delete(n.cuts, l)
	}
}

// HealAll removes all cuts and splits.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// Stats returns the current counters.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	s.StreamsOpen = uint64(len(n.streams))
	s.InFlight = uint64(len(n.wire))
	for _, t := range n.nodes {
		s.InFlight += uint64(len(t.queue))
	}
	return s
}

func (n *Network) cut(links ...link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		n.cuts[l] = struct{}{}
	}
	n.breakStreams(func(s *stream) bool { return n.separated(s.ends[0].t.addr, s.ends[1].t.addr) })
}

// separated reports whether no stream can exist between a and b.
func (n *Network) separated(a, b netip.AddrPort) bool {
	return n.isCut(a, b) || n.isCut(b, a)
}

func (n *Network) isCut(from, to netip.AddrPort) bool {
	_, cut := n.cuts[link{from, to}]
	return cut
}

// breakStreams resets the streams that which selects. n.mu is held.
func (n *Network) breakStreams(which func(*stream) bool) {
	n.streams = slices.DeleteFunc(n.streams, func(s *stream) bool {
		if !which(s) {
			return false
		}
		s.breakOff()
		return true
	})
}

func both(a, b string) []link {
	x, y := mustAddr(a), mustAddr(b)
	return []link{{x, y}, {y, x}}
}

func parseAddr(addr string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return at, fmt.Errorf("simnet: address %q: %w", addr, err)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

func mustAddr(addr string) netip.AddrPort {
	at, err := parseAddr(addr)
	if err != nil {
		panic(err)
	}
	return at
}
