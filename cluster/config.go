package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Network picks the default timings for a kind of network.
type Network int

// The kinds of network, with their heartbeat interval and lease TTL.
const (
	LAN   Network = iota // one data centre: 2 s, 6 s
	WAN                  // several regions: 5 s, 20 s
	Local                // tests on one machine: 200 ms, 6 s

	// Local is for the tests of programs that embed an agent. A node is ready some 30 ms after its start, and
	// a leave or the end of a process reaches the others in 0.2 s. The TTL is that of LAN, because busy
	// machines stop a process for a second now and then, and a node whose lease ends owns nothing for a
	// while. A test that waits for the end of a lease sets a shorter LeaseTTL, or runs package clustertest in
	// virtual time.
)

// Config is what an agent is started with. The zero value of every field but ID
// is a sensible default; Start does not change the caller's Config.
type Config struct {
	// ID names this node: 1 to 64 bytes of [A-Za-z0-9._:-] and square brackets. It must be unique in
	// the cluster and should stay the same across restarts, since partitions are
	// assigned to ids.
	ID string

	// Cluster is the name of the cluster, which separates its packets from those of
	// other clusters: give each cluster a name of its own. At most 64 bytes. Default "roost".
	Cluster string

	// Bind is the host:port to gossip on, UDP and TCP. Port 0 takes a free one.
	// Default "127.0.0.1:7946", which no other machine reaches.
	Bind string

	// Advertise is the host:port that other nodes reach this one at. Default: the
	// bound address. If that is 0.0.0.0 or ::, it is the address from which this host
	// reaches the seeds, or its default gateway if there are none; when the host loses that
	// address, the node advertises the one that it has instead.
	Advertise string

	// Join lists seeds: nodes to join the cluster through, as host:port or as the name of an SRV record. Each
	// attempt resolves names again. Seeds that are not members are retried without end, which heals a long
	// split. A node skips its own address; with loopback addresses of itself alone, such as localhost, it
	// starts at once.
	Join []string

	// Discover returns further seeds, in the forms of Join: from the API of a cloud, or a file. It is called
	// whenever names of Join are looked up: while the node joins, with each round of attempts, then every
	// RejoinInterval, which heals a long split. It returns within 5 s, by its context, and is not called
	// again before. At most 1,000 seeds count. An error is like a seed that does not answer. If it names this
	// node and nobody else, the node starts at once: the list has to be such that a node which sees itself
	// also sees all that were listed before, as in one API or one file. If it names nobody, the node waits
	// for StartupGrace, because others may not be listed yet. Default: none.
	Discover func(ctx context.Context) ([]string, error)

	// Bootstrap makes the node start without waiting for seeds: it may be the first
	// of its cluster. Without seeds it is implied.
	Bootstrap bool

	// Key encrypts gossip with AES: 16, 24 or 32 bytes. Default: plain text. Without
	// a key, any host that reaches the port can send in the name of any node.
	Key []byte

	// OldKeys decrypt received packets and are not used to send: for the time in
	// which a cluster changes its key. First give every node the new key here, then
	// swap it with Key, then remove the former key. [PlainText] is the former key of a cluster
	// without one.
	OldKeys [][]byte

	// GossipAllow lists the networks that gossip is taken from: packets and connections of other
	// sources are dropped unread, and counted in [Stats]. List the addresses of all nodes; a
	// node outside of it is not heard. It is no replacement for a key: a sender can forge the
	// source of a packet. Default: all.
	GossipAllow []netip.Prefix

	// APIAddr is where clients that look up a key reach the application of this node.
	// roost passes it on and does not interpret it. At most 255 bytes.
	APIAddr string

	// Zone, Labels and Capacity (units of load) are passed on likewise. Zone and the value of a label have at most 253
	// bytes, as a domain name has.
	Zone     string
	Labels   map[string]string
	Capacity int64

	// Meta is what your application tells the others of this node: at most 512 bytes, which roost does not
	// interpret. It is fixed at the start: a label can follow what changes. A node's whole record, with zone,
	// labels and addresses, has at most 1,024 bytes, so that it fits into one packet.
	Meta string

	// Weight is this node's share relative to others. Default 100. StartDraining
	// joins without owning anything.
	Weight uint32

	// SlowStart is how long a new node's weight takes to grow to Weight, in ten equal
	// steps beginning with a tenth, so that a cold node does not get its full share
	// at once. Each step moves partitions to this node only, if the strategy uses
	// weights. A slow start begins whenever the node begins to own while others do: after
	// a join, an Undrain or a fence. Nodes that start together have no slow start; of nodes
	// that start one by one, the first carries the share of the others until their
	// slow starts end. SetWeight and Drain end a slow start. It has no effect with
	// placement.LeastPartitions, which fills nodes in passes. Default 0: none.
	SlowStart time.Duration

	// AppVersion is the version of this node's application, in at most 64 bytes. Members show it
	// to people, and the metrics count members by it, so that you see a deploy arrive. Default: none.
	AppVersion string

	// HTTPAddr is the IP address and port at which this node's HTTP API listens (package clusterhttp), and
	// HTTPTLS says that it speaks TLS. Members show the API's URL to tools, unless its host is neither the
	// advertised one nor 0.0.0.0: see Member.HTTP. Default: none.
	HTTPAddr string
	HTTPTLS  bool

	// StartDraining joins as a member that owns nothing until Undrain.
	StartDraining bool

	// Health reports whether the application of this node can serve: an error says why it is
	// unhealthy. An unhealthy node drains: it owns nothing, and stays a member. The agent calls
	// Health every HealthInterval, in a goroutine of its own and one call at a time. The context ends
	// after HealthInterval; a call that does not return by then has failed. Two failures in
	// a row make the application unhealthy, two successes in a row healthy. It is unhealthy until
	// the first call has succeeded. Check only what another node does better: if all are
	// unhealthy, no node owns anything. Default: none, always healthy.
	Health func(ctx context.Context) error

	// HealthInterval is the time between two calls of Health. Default: HeartbeatInterval.
	HealthInterval time.Duration

	// MinMembers is the number of live members, this node among them, without which the
	// node owns nothing: it is isolated (PhaseIsolated). Members count in any state. This
	// holds at the start, so that ten nodes with 10 wait for each other, and in a split,
	// where only sides of that size own anything. A node that loses its fellows keeps its
	// last table for lookups, and its pinned rooms. Choose it below the number of nodes by
	// at least as many as may stop at a time. Nodes may differ in it. Default 1: none is
	// ever isolated.
	MinMembers int

	// DisableFlapDamping lets this node own partitions however often it comes and goes. By default
	// a node whose process crashes, or that others lose, is flapping from its third return within
	// ten TTLs on: it drains for 2 to 30 TTLs, the longer the more often it returned. That ends
	// for good once less than half of the members with a weight can own partitions without it.
	// Member.FlappingUntil says until when. [Agent.Leave] resets the count.
	DisableFlapDamping bool

	// Handoff is how long this node waits at most, when a partition moves, until the run of
	// its former owner has returned: a partition then runs on one node at a time, where the
	// application uses [Agent.RunOwned]. The bound begins a run without the answer of a node that
	// hangs, and the log names it. Nodes may differ in the bound; partitions that move from or
	// to a node without handoff do not wait. See docs/handoff.md. Default 0: none.
	Handoff time.Duration

	// Split is what nodes do that lose sight of each other: SplitContinue (the default) or
	// SplitMajority, which is for three nodes or more. The same on all nodes.
	Split Split

	// SplitForget is how long a member that fell silent votes under SplitMajority: survivors of a crash of
	// most nodes at once, or of the smaller id of two, own nothing for that long, and a split that lasts
	// longer has two sides that own everything. The same on all nodes. Default 10 min.
	SplitForget time.Duration

	// Partitions is the number of partitions of the key space. The same on all
	// nodes. Default 1,024, good for about 10 nodes at 10 % deviation; the
	// deviation falls with the square root of partitions per node.
	Partitions int

	// Strategy assigns partitions to nodes. The same on all nodes. The agent's loop
	// calls it, so it must return: see [Agent.LoopAge]. Default placement.Rendezvous().
	Strategy placement.Strategy

	// Network picks the defaults of the timings below. Default LAN.
	Network Network

	// HeartbeatInterval is how often the node renews its lease, ±10 %. The same
	// on all nodes.
	HeartbeatInterval time.Duration

	// LeaseTTL is the age at which a lease expires: how long a node may be silent.
	// The same on all nodes. At least 1.3 times the heartbeat interval; 2.5 times is advised.
	LeaseTTL time.Duration

	// MaxSkew is how far a node's wall clock may be ahead of the cluster's. The
	// same on all nodes. Default 5 s.
	MaxSkew time.Duration

	// Debounce is how long joins are gathered into one change. Leaves are published
	// at once. Default 250 ms (WAN 1 s, Local 10 ms).
	Debounce time.Duration

	// StartupGrace is how long a starting node waits for any seed to answer before it continues alone. Each
	// address is tried once in any case. It begins again with each seed that accepts a connection and does
	// not answer. Default 10 s (WAN 30 s, Local 2 s).
	StartupGrace time.Duration

	// RejoinInterval is how often seeds that are not members, and members lost within the
	// last day, are tried, ±20 %.
	// Default 10 s (Local 1 s).
	RejoinInterval time.Duration

	// GossipInterval is how often news is sent to GossipNodes random members.
	// Default 200 ms to 3 (WAN 500 ms to 4, Local 20 ms to 3); at most MaxGossipNodes.
	// A cluster of more than about 1,500 nodes sends each member several packets.
	GossipInterval time.Duration
	GossipNodes    int

	// Log receives the agent's log. Default slog.Default(). A goroutine of its own calls
	// the handler, which may be slow: of more than 4,096 lines that wait, the oldest are
	// dropped and counted in [Stats].
	Log *slog.Logger
}

// MaxGossipNodes bounds Config.GossipNodes.
const MaxGossipNodes = 32

// Split is a policy for splits of the network.
type Split string

// The policies. With SplitContinue each side owns all partitions: the cluster is available,
// and partitions have two owners. With SplitMajority only the side with most of the members
// that were live, or with half of them and the smallest id, owns any; a node on another side
// is isolated (PhaseIsolated). A member that left does not count, and neither
// does one whose process ended, a LeaseTTL or two later, if most of the others are live. Processes that crash one after
// another and are replaced under new ids add up if less than two LeaseTTL lie between a replacement and the next crash.
const (
	SplitContinue Split = "continue"
	SplitMajority Split = "majority"
)

const defaultCluster = "roost"

type timings struct {
	heartbeat, ttl, debounce, grace, rejoin, gossip time.Duration
	stream                                          time.Duration // bounds a connection attempt, and a full exchange
	nodes                                           int
	profile                                         gossip.Profile
}

func (n Network) timings() timings {
	switch n {
	case WAN:
		return timings{
			5 * time.Second, 20 * time.Second, time.Second, 30 * time.Second, 10 * time.Second,
			500 * time.Millisecond, 10 * time.Second, 4, gossip.WAN,
		}
	case Local:
		return timings{
			200 * time.Millisecond, 6 * time.Second, 10 * time.Millisecond, 2 * time.Second, time.Second,
			20 * time.Millisecond, time.Second, 3, gossip.Local,
		}
	default:
		return timings{
			2 * time.Second, 6 * time.Second, 250 * time.Millisecond, 10 * time.Second, 10 * time.Second,
			200 * time.Millisecond, 2500 * time.Millisecond, 3, gossip.LAN,
		}
	}
}

// WithDefaults returns c with every zero field replaced by its default.
func (c Config) WithDefaults() Config {
	t := c.Network.timings()
	setDefault(&c.Cluster, defaultCluster)
	setDefault(&c.Bind, "127.0.0.1:7946")
	setDefault(&c.Weight, 100)
	setDefault(&c.MinMembers, 1)
	setDefault(&c.Split, SplitContinue)
	setDefault(&c.SplitForget, 10*time.Minute)
	setDefault(&c.Partitions, placement.DefaultPartitions)
	setDefault(&c.HeartbeatInterval, t.heartbeat)
	setDefault(&c.HealthInterval, c.HeartbeatInterval)
	setDefault(&c.LeaseTTL, t.ttl)
	setDefault(&c.MaxSkew, 5*time.Second)
	setDefault(&c.Debounce, t.debounce)
	setDefault(&c.StartupGrace, t.grace)
	setDefault(&c.RejoinInterval, t.rejoin)
	setDefault(&c.GossipInterval, t.gossip)
	setDefault(&c.GossipNodes, t.nodes)
	if c.Strategy == nil {
		c.Strategy = placement.Rendezvous()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// clone returns a copy that shares no memory with c.
func (c Config) clone() Config {
	c.OldKeys = slices.Clone(c.OldKeys)
	for i, key := range c.OldKeys {
		c.OldKeys[i] = slices.Clone(key)
	}
	c.Key, c.Join, c.Labels = slices.Clone(c.Key), slices.Clone(c.Join), maps.Clone(c.Labels)
	c.GossipAllow = slices.Clone(c.GossipAllow)
	return c
}

const longestAddr = "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535"

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns all problems of c, after defaults, joined, or nil. Start calls it.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	problem := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("cluster: "+format, args...))
		}
	}
	self := c.record(longestAddr, math.MaxUint64) // as long as it can become
	self.Version, self.HTTP = math.MaxUint32, lease.MaxHTTP
	if err := self.Validate(); err != nil {
		errs = append(errs, err)
	}
	problem(strings.ContainsRune(c.Cluster, 0) || len(c.Cluster) > 64, "Cluster has %d bytes, at most 64, none of them zero", len(c.Cluster))
	problem(!hostPort(c.Bind), "Bind %q is not host:port", c.Bind)
	c.checkAdvertise(problem)
	problem(c.HTTPAddr != "" && !ipPort(c.HTTPAddr), "HTTPAddr %q is not an IP address and a port", c.HTTPAddr)
	for _, seed := range c.Join {
		problem(!validSeed(seed), "Join %q is neither host:port nor the name of an SRV record such as _roost._udp.example.org", seed)
	}
	c.checkKeys(problem)
	c.checkAllowed(problem)
	problem(c.Partitions < 1 || c.Partitions > placement.MaxPartitions, "Partitions is %d; it must be 1 to %d",
		c.Partitions, placement.MaxPartitions)
	size := len(settingsOf(c).meta(make(lease.ClusterID, lease.MaxFounders)))
	problem(size > gossip.MaxMeta,
		"the settings that nodes compare take %d bytes, at most %d: Strategy has a name of %d", size,
		gossip.MaxMeta, len(c.Strategy.Name()))
	problem(strings.ContainsAny(c.Strategy.Name(), "=\n"), "Strategy has a name with = or a line break: %q", c.Strategy.Name())
	problem(c.GossipNodes < 1 || c.GossipNodes > MaxGossipNodes, "GossipNodes is %d; it must be 1 to %d", c.GossipNodes, MaxGossipNodes)
	c.checkIsolation(problem)
	c.checkTimings(problem)
	return errors.Join(errs...)
}

// checkAdvertise rejects what no other node can send to. A name is looked up at the start.
func (c Config) checkAdvertise(problem func(bad bool, format string, args ...any)) {
	if c.Advertise == "" {
		return
	}
	host, _, err := net.SplitHostPort(c.Advertise)
	if err != nil || !hostPort(c.Advertise) {
		problem(true, "Advertise %q is not host:port", c.Advertise)
		return
	}
	problem(host == "", "Advertise %q has no host (is a variable empty?): set the host:port at which other nodes reach this one", c.Advertise)
	if ip, err := netip.ParseAddr(host); err == nil {
		problem(!gossip.Usable(ip),
			"Advertise %q is not the address of one host: set the host:port at which other nodes reach this one, or leave it empty",
			c.Advertise)
	}
}

func (c Config) checkIsolation(problem func(bad bool, format string, args ...any)) {
	problem(c.MinMembers < 1 || c.MinMembers > lease.MaxNodes,
		"MinMembers is %d; it must be 1 (never isolated) to %d", c.MinMembers, lease.MaxNodes)
	problem(c.Split != SplitContinue && c.Split != SplitMajority, "Split is %q; it must be %s or %s", c.Split, SplitContinue, SplitMajority)
	problem(c.Split == SplitMajority && (c.SplitForget < c.LeaseTTL || c.SplitForget > 24*time.Hour),
		"SplitForget is %v; it must be %v (LeaseTTL) to 24h", c.SplitForget, c.LeaseTTL)
}

func (c Config) checkKeys(problem func(bad bool, format string, args ...any)) {
	problem(len(c.Key) != 0 && !aesKey(c.Key) && string(c.Key) != PlainText,
		"Key has %d bytes; it must have 16, 24 or 32, or be PlainText", len(c.Key))
	problem(len(c.Key) == 0 && len(c.OldKeys) > 0,
		"OldKeys are set without a Key: to send plain text and accept keys, too, set Key to PlainText")
	for _, key := range c.OldKeys {
		problem(!aesKey(key) && string(key) != PlainText, "OldKeys has a key of %d bytes; it must have 16, 24 or 32, or be PlainText", len(key))
	}
}

func (c Config) checkTimings(problem func(bad bool, format string, args ...any)) {
	// A heartbeat can be a tenth of the interval late, and the own lease ends an eighth of the TTL early.
	problem(10*c.LeaseTTL < 13*c.HeartbeatInterval,
		"LeaseTTL (%v) must be at least 1.3 times HeartbeatInterval (%v), or leases end between two heartbeats",
		c.LeaseTTL, c.HeartbeatInterval)
	problem(c.Handoff != 0 && (c.Handoff < c.LeaseTTL || c.Handoff > 24*time.Hour),
		"Handoff is %v; it must be 0 (none), or %v (LeaseTTL, within which a silent node answers or is gone) to 24h",
		c.Handoff, c.LeaseTTL)
	problem(c.LeaseTTL > time.Hour, "LeaseTTL is %v, at most 1h", c.LeaseTTL)
	problem(c.Health != nil && c.HealthInterval < 10*time.Millisecond, "HealthInterval is %v, at least 10ms", c.HealthInterval)
	shortest := node.SlowStartSteps * c.Debounce // steps within one debounce would be gathered into one
	problem(c.SlowStart != 0 && (c.SlowStart < shortest || c.SlowStart > 24*time.Hour),
		"SlowStart is %v; it must be 0, or %v (%d times Debounce) to 24h", c.SlowStart, shortest,
		node.SlowStartSteps)
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"HeartbeatInterval", c.HeartbeatInterval, 10 * time.Millisecond},
		{"MaxSkew", c.MaxSkew, time.Millisecond},
		{"Debounce", c.Debounce, time.Millisecond},
		{"StartupGrace", c.StartupGrace, time.Millisecond},
		{"RejoinInterval", c.RejoinInterval, 10 * time.Millisecond},
		{"GossipInterval", c.GossipInterval, time.Millisecond},
	} {
		problem(d.value < d.least, "%s is %v, at least %v", d.name, d.value, d.least)
	}
}

// warnings returns the settings that are allowed but risky.
func (c Config) warnings() []string {
	var w []string
	if 2*c.LeaseTTL < 5*c.HeartbeatInterval {
		w = append(w, fmt.Sprintf("LeaseTTL (%v) is less than 2.5 times HeartbeatInterval (%v): one lost heartbeat can end a lease",
			c.LeaseTTL, c.HeartbeatInterval))
	}
	plain := func(k []byte) bool { return string(k) == PlainText }
	if slices.ContainsFunc(c.keys(), plain) && !loopback(c.Bind) {
		w = append(w,
			fmt.Sprintf("gossip on %s accepts plain text besides the key: any host that reaches the port can send in the name of any node; remove it once all nodes encrypt",
				c.Bind))
	}
	if len(c.Key) == 0 && !loopback(c.Bind) {
		w = append(w,
			fmt.Sprintf("gossip on %s is not encrypted: any host that reaches the port can send in the name of any node; set a Key (--key-file)",
				c.Bind))
		if c.Cluster == defaultCluster {
			w = append(w,
				fmt.Sprintf("Cluster has the default name %q: a seed that is of another cluster by mistake would unite the two; set a name of its own (--cluster)",
					c.Cluster))
		}
	}
	return w
}

func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func ipPort(s string) bool {
	_, err := netip.ParseAddrPort(s)
	return err == nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func aesKey(key []byte) bool { return len(key) == 16 || len(key) == 24 || len(key) == 32 }
