package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// MaxMeta is the maximum number of bytes that Config.Meta may return.
const MaxMeta = memberlist.MetaMaxSize

// Profile selects memberlist's timings for a kind of network.
type Profile int

// The kinds of network.
const (
	LAN Profile = iota
	WAN
	Local
)

// Config describes one node.
type Config struct {
	Name      string         // unique for this run of the node: its id, "#" and its incarnation
	Bind      string         // host:port to listen on, UDP and TCP; port 0 = any free port
	Advertise string         // host:port at which other nodes reach it; "" = the bound address, or a guess if it listens on all addresses
	Seeds     []string       // ip:port; the guess of the advertised address depends on them
	Cluster   string         // label of every packet; packets with another label are dropped
	Key       []byte         // AES key of 16, 24 or 32 bytes; nil or PlainText = plain text
	OldKeys   [][]byte       // previous or next keys, which are also accepted; if PlainText is among them, plain text is accepted
	Allow     []netip.Prefix // packets and streams from other sources are dropped unread; empty = all sources are allowed
	Profile   Profile

	// LookUp returns the ip:port of further seeds, and respects ctx. LookUp is only called if the guess of
	// this node's own address depends on these seeds. nil means that there are no further seeds.
	LookUp func(ctx context.Context) []string

	// StreamTimeout limits the duration of a connection attempt and of a full exchange.
	StreamTimeout time.Duration
	Meta          func() []byte                        // this node's settings and cluster, at most 512 bytes; see Announce
	Accept        func(name string, meta []byte) error // decides on another node's settings; runs under memberlist's lock: must not block
	Ours          func(meta []byte) bool               // decides on another node's cluster, like Accept; memberlist only lists nodes of this cluster; nil = all
	Log           *slog.Logger

	// Live reports whether a node with a live lease is at an ip:port. nil means that all addresses are
	// considered live. Live must not block.
	Live func(addr string) bool

	// Self returns the identity with which this node answers at its address. Meet decides whether memberlist
	// may exchange states with the node that answers at the address of a member. nil means that it may. Both
	// functions are called by the goroutines of streams.
	Self func() Peer
	Meet func(Peer) error

	// Ended is called when a watched node could not be reached again. It is called by the goroutines of watch
	// streams.
	Ended func(lease.Handle, lease.Evidence)
	// IdleTimeout is how long the host of a watched node may be silent, and at least 3 s.
	IdleTimeout time.Duration
}

// Receiver handles the received messages.
type Receiver interface {
	// Receive handles one packet, and takes ownership of its memory. It must not block.
	Receive(packet []byte)
	// State returns the node's full state. It may block for a moment.
	State() []byte
	// Merge applies the full state of another node before it returns.
	Merge(state []byte)
}

// Node is a running node of the gossip network.
type Node struct {
	list     atomic.Pointer[memberlist.Memberlist]
	own      atomic.Pointer[own]
	host     host // its functions are nil on a simulated network
	greeter  *greeter
	firewall *firewall.Firewall
	watcher  *watcher

	rejections *firewall.Rejections
	budget     int
	joins      atomic.Uint64

	config   memberlist.Config // config of each memberlist, except its name and the advertised address
	delegate func(name string) *delegate

	rejected atomic.Pointer[error] // the latest rejection, of any join

	ending chan struct{} // holds a token during Advertise, Leave and Close
	left   bool
	closed bool
}

// Start listens and returns the running node, which has no peers yet.
func Start(ctx context.Context, cfg Config, r Receiver) (*Node, error) {
	if size := len(cfg.Meta()); size > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip: settings take %d bytes, at most %d", size, memberlist.MetaMaxSize)
	}
	if len(cfg.Cluster) > memberlist.LabelMaxSize {
		return nil, fmt.Errorf("gossip: cluster name has %d bytes, at most %d", len(cfg.Cluster), memberlist.LabelMaxSize)
	}
	creds := newCredentials(cfg.Cluster, cfg.Key, cfg.OldKeys)
	ring, err := firewall.NewRing(creds.Keys)
	if err != nil {
		return nil, err
	}
	mc, o, err := cfg.memberlist(ctx)
	if err != nil {
		return nil, err
	}
	n := &Node{rejections: firewall.NewRejections(cfg.Log), ending: make(chan struct{}, 1)}
	transport := EnvOf(ctx).Transport
	if transport == nil {
		n.host = thisHost()
		if transport, err = listen(mc, cfg.Allow, n.rejections); err != nil {
			return nil, err
		}
	}
	n.greeter = newGreeter(&cfg, creds, ring)
	n.firewall = firewall.New(transport, firewall.Config{
		Label: cfg.Cluster, Ring: ring, Rejections: n.rejections, Live: cfg.Live,
		HeadTimeout: n.greeter.headTimeout, StreamTimeout: cfg.StreamTimeout,
		Incoming: n.greeter.incoming, Outgoing: n.greeter.outgoing,
	})
	n.watcher = newWatcher(&cfg, n.greeter, n.firewall)
	mc.Transport, mc.Keyring = shared{n.firewall}, ring.Keyring()
	mc.GossipVerifyIncoming = n.greeter.strict // the firewall decides which messages are accepted
	n.config = *mc
	n.delegate = func(name string) *delegate {
		return &delegate{node: n, meta: cfg.Meta, accept: cfg.Accept, ours: cfg.Ours, self: name, to: r}
	}
	if err := n.create(cfg.Name, o); err != nil {
		_ = n.firewall.Shutdown()
		return nil, err
	}
	// Leave room in each packet for the message type, checksum, label and encryption.
	n.budget = mc.UDPBufferSize - 64 - len(cfg.Cluster)
	return n, nil
}

// shared is the transport of memberlist. It outlives a single memberlist: see [Node.Advertise].
type shared struct{ *firewall.Firewall }

// Shutdown implements memberlist.Transport.
func (shared) Shutdown() error { return nil }

// create creates the memberlist in which this node has the given name and address.
func (n *Node) create(name string, o own) error {
	mc, d := n.config, n.delegate(name)
	mc.Name, mc.Delegate, mc.Alive, mc.Merge, mc.Events = name, d, d, d, d
	if n.host.addrs != nil {
		mc.AdvertiseAddr, mc.AdvertisePort = o.at.Addr().WithZone("").String(), int(o.at.Port())
	}
	list, err := memberlist.Create(&mc)
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	o.at, _ = netip.ParseAddrPort(list.LocalNode().Address()) // the address of a memberlist is valid
	n.firewall.SetOwn(o.at.Addr())
	n.own.Store(&o)
	n.list.Store(list)
	return nil
}

// Advertise changes the ip:port at which other nodes reach this node. The name has the same form as in
// [Config]. The name must be new, because memberlist does not let a name change its address. Other nodes
// forget the previous name, as if its process had ended. Open streams are not closed.
func (n *Node) Advertise(name, addr string) error {
	n.ending <- struct{}{}
	defer func() { <-n.ending }()
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("gossip: advertise: %w", err)
	}
	if n.closed || n.left {
		return nil
	}
	former, o := n.list.Load(), *n.own.Load()
	o.at, o.had = at, true
	if err := n.create(name, o); err != nil {
		return err
	}
	n.Announce() // announce changes that were made after the new list read the metadata
	if err := former.Shutdown(); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

func (cfg *Config) memberlist(ctx context.Context) (*memberlist.Config, own, error) {
	var mc *memberlist.Config
	switch cfg.Profile {
	case WAN:
		mc = memberlist.DefaultWANConfig()
	case Local:
		mc = memberlist.DefaultLocalConfig()
	default:
		mc = memberlist.DefaultLANConfig()
	}
	mc.Name = cfg.Name
	mc.Label = cfg.Cluster
	mc.TCPTimeout = cfg.StreamTimeout
	mc.EnableCompression = false // costs CPU, and makes heartbeats larger
	mc.Logger = logger(cfg.Log)
	if EnvOf(ctx).Transport != nil {
		return mc, own{}, nil
	}
	bind, err := resolveOne(ctx, "bind", cfg.Bind)
	if err != nil {
		return nil, own{}, err
	}
	mc.BindAddr, mc.BindPort = bind.Addr().String(), int(bind.Port())
	o, err := cfg.ownAddress(ctx, bind, thisHost())
	return mc, o, err
}

// listen opens the sockets. For port 0 it tries several times, because the free TCP port that the kernel
// chooses may be in use for UDP.
func listen(mc *memberlist.Config, allow []netip.Prefix, r *firewall.Rejections) (memberlist.NodeAwareTransport, error) {
	tries := 1
	if mc.BindPort == 0 {
		tries = 10
	}
	bind, err := netip.ParseAddr(mc.BindAddr)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	for range tries {
		var t *firewall.Sockets
		if t, err = firewall.Listen(netip.AddrPortFrom(bind, uint16(mc.BindPort)), allow, r, mc.Logger); err == nil {
			if mc.BindPort == 0 {
				mc.BindPort = int(t.Port())
			}
			return t, nil
		}
	}
	at := net.JoinHostPort(mc.BindAddr, strconv.Itoa(mc.BindPort))
	return nil, fmt.Errorf("gossip: cannot listen on %s%s: %w", at, hint(bind, err), err)
}

// hint returns the likely reason for an error of listen, in parentheses, or "" if the error is clear by
// itself.
func hint(bind netip.Addr, err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (is another agent running there?)"
	case errors.Is(err, syscall.EINVAL) && bind.Is6() && bind.IsLinkLocalUnicast() && bind.Zone() == "":
		return " (a link-local address needs the zone of its interface, as in [fe80::1%eth0]:7946)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return " (this machine has no such address: bind to one that it has, and advertise the address that others use)"
	}
	return ""
}

// Addr returns the ip:port at which other nodes reach this node.
func (n *Node) Addr() string { return n.own.Load().at.String() }

// SetKeys returns these errors for changes that would cut off this node if they were made in one step.
var (
	ErrPlain  = errors.New("gossip: this node sends plain text, so it must accept plain text until all nodes encrypt: keep plain text among the keys")
	ErrSealed = errors.New("gossip: this node encrypts, and can send or accept plain text only after a restart")
)

// SetKeys replaces the keys. The first key encrypts, and every key decrypts. While a cluster switches to its
// first key, PlainText is one of the keys. Open streams are not closed. Concurrent calls take effect one
// after the other.
func (n *Node) SetKeys(key []byte, old [][]byte) error { return n.greeter.setKeys(key, old) }

// Keys returns the keys. The first key encrypts, and every key decrypts. PlainText is among the keys if the
// node also sends or accepts plain text. Without encryption, Keys returns no keys.
func (n *Node) Keys() [][]byte { return n.greeter.credentials.Load().given }

// Sealed returns the fingerprint of the key that encrypts, in hexadecimal digits, and how many packets and
// stream messages this node has encrypted with it. If a key is used again later, its count continues. Without
// encryption, both results are zero.
func (n *Node) Sealed() (fingerprint string, messages uint64) { return n.greeter.ring.Sealed() }

// Announce tells other nodes that the result of Config.Meta has changed. It does not wait until they have
// received the change.
func (n *Node) Announce() {
	_ = n.list.Load().UpdateNode(time.Nanosecond) // the error only says that other nodes have not received it yet
}

// Budget returns the maximum size of a packet's content.
func (n *Node) Budget() int { return n.budget }

// Dropped returns how many packets and connections the firewall dropped because they did not come from an
// agent. It does not include packets and connections that Rejected counts.
func (n *Node) Dropped() uint64 { return n.firewall.Dropped() }

// Send sends one packet to an ip:port without blocking. The packet may be lost.
func (n *Node) Send(addr string, packet []byte) error {
	// Addresses come from other nodes, and a name would cause a DNS query.
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return fmt.Errorf("gossip: send: %w", err)
	}
	return n.list.Load().SendToAddress(memberlist.Address{Addr: addr}, packet)
}

// Leave tells memberlist's peers that this node is leaving. It waits at most timeout for the first peer to be
// notified. It does nothing if the node is closed or has already left.
func (n *Node) Leave(timeout time.Duration) error {
	n.ending <- struct{}{}
	defer func() { <-n.ending }()
	if n.closed || n.left {
		return nil
	}
	n.left = true
	if err := n.list.Load().Leave(timeout); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// Close stops listening immediately, without a leave message. It may be called more than once.
func (n *Node) Close() error {
	n.ending <- struct{}{}
	defer func() { <-n.ending }()
	if n.closed {
		return nil
	}
	n.closed = true
	n.watcher.stop()
	err := errors.Join(n.firewall.Shutdown(), n.list.Load().Shutdown())
	n.watcher.close()
	return err
}
