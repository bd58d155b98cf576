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

// Config is how a [Network] treats packets. Its zero value is a perfect network.
type Config struct {
	Seed   uint64        // of all losses and jitter; equal seeds decide alike
	Delay  time.Duration // of every packet, one way; 0: it arrives at the same instant
	Jitter time.Duration // added to Delay: uniform in [0, Jitter), so it reorders packets
	Loss   float64       // share of packets lost, from 0 to 1
}

// Network connects transports. All methods may be called concurrently. Those
// that take addresses as host:port panic if one is malformed: a fault that a
// test believes it has injected, but has not, would prove nothing.
type Network struct {
	mu      sync.Mutex // taken before a stream's mutex, never after it
	cfg     Config
	nodes   map[netip.AddrPort]*Transport
	listens map[netip.AddrPort]uint64 // how often an address was listened on
	cuts    map[link]struct{}
	streams []*stream // in order of dialing, so that faults hit them in a fixed order
	wire    wire
	sent    uint64      // sequence number of the last packet put on the wire
	timer   *time.Timer // of the next arrival; made by the first packet, inside the bubble
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

// Listen attaches a node at addr, an IP address and port such as
// "10.0.0.1:7946". It fails with EADDRINUSE while another transport has the
// address; one that crashed or was shut down has it no longer.
func (n *Network) Listen(addr string) (*Transport, error) {
	at, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if at.Port() == 0 || at.Addr().IsUnspecified() {
		return nil, fmt.Errorf("simnet: listen on %q: neither address nor port may be left open", addr)
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

// SetLoss sets the share of packets lost, from 0 to 1, for packets sent from now on.
func (n *Network) SetLoss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Loss = share
}

// SetDelay sets delay and jitter, as in [Config], for packets sent from now on.
func (n *Network) SetDelay(delay, jitter time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Delay, n.cfg.Jitter = delay, jitter
}

// Cut separates a and b, in both directions.
func (n *Network) Cut(a, b string) { n.cut(both(a, b)...) }

// CutOneWay stops packets from one address to another, and streams between
// them, but lets packets pass in the other direction.
func (n *Network) CutOneWay(from, to string) {
	n.cut(link{mustAddr(from), mustAddr(to)})
}

// Split cuts every pair of addresses that are in different groups. It adds to
// earlier cuts. An address in no group still reaches all of them.
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

// Heal undoes what cuts there are between a and b, by whichever call they were made.
func (n *Network) Heal(a, b string) {
	links := both(a, b)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		delete(n.cuts, l)
	}
}

// HealAll undoes every cut and split.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// Stats returns the counters as they are now.
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
	n.breakStreams(func(s *stream) bool { return n.apart(s.ends[0].t.addr, s.ends[1].t.addr) })
}

// apart reports whether no stream can exist between a and b.
func (n *Network) apart(a, b netip.AddrPort) bool {
	return n.isCut(a, b) || n.isCut(b, a)
}

func (n *Network) isCut(from, to netip.AddrPort) bool {
	_, cut := n.cuts[link{from, to}]
	return cut
}

// breakStreams resets the streams that which picks. n.mu is held.
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
