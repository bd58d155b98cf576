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

	// Local is for tests of programs that embed an agent. A node is ready about 30 ms after its start, and a
	// leave or the end of a process reaches the others in 0.2 s. The TTL is as long as that of LAN, because a
	// busy machine may stop a process for a second, and a node whose lease expires owns nothing for a while.
	// A test that waits until a lease expires should set a shorter LeaseTTL, or run package clustertest in
	// virtual time.
)

// Config configures an agent. Only ID is required: the zero value of every other field means its default.
// Start does not change the caller's Config.
type Config struct {
	// ID names this node: 1 to 64 bytes of [A-Za-z0-9._:-] and square brackets. It must be unique in the
	// cluster. It should stay the same across restarts, because partitions are assigned to ids.
	ID string

	// Cluster is the name of the cluster. Give each cluster its own name, because nodes reject packets with
	// another name. At most 64 bytes. Default "roost".
	Cluster string

	// Bind is the host:port to gossip on, over UDP and TCP. Port 0 picks a free port. Default
	// "127.0.0.1:7946", which no other machine reaches.
	Bind string

	// Advertise is the host:port at which other nodes reach this one. Default: the bound address. If the node
	// is bound to 0.0.0.0 or ::, the default is the address from which this host reaches the seeds or,
	// without seeds, its default gateway. When the host loses that address, the node advertises the address
	// that it has instead.
	Advertise string

	// Join lists seeds, which are nodes that this node joins the cluster through: host:port, or the name of
	// an SRV record. Each attempt resolves the names again. The node never stops trying seeds that are not
	// members, so that a long split heals. It skips its own address. If all seeds are its own loopback
	// addresses, such as localhost, it starts at once.
	Join []string

	// Discover returns more seeds in the forms of Join, for example from the API of a cloud or from a file.
	// The agent calls it whenever it looks up the names of Join: with each attempt to join, and then every
	// RejoinInterval, so that a long split heals. Its context ends after 5 s, and there is only one call at a
	// time. The agent uses the first 1,000 seeds. It treats an error like a seed that does not answer.
	//
	// If Discover names only this node, the node starts at once. So a node that sees itself in the list must
	// also see all nodes that were listed before, as in one API or one file. If Discover names no node, the
	// node waits for StartupGrace, because others may not be listed yet. Default: none.
	Discover func(ctx context.Context) ([]string, error)

	// Bootstrap makes the node start without waiting for seeds, because it may be the first of its cluster. A
	// node without seeds always does so.
	Bootstrap bool

	// Key encrypts gossip with AES. It has 16, 24 or 32 bytes. Default: plain text. Without a key, any host
	// that reaches the port can send in the name of any node.
	Key []byte

	// OldKeys only decrypt received packets, while a cluster changes its key. First give every node the new
	// key here, then swap it with Key, then remove the old key. If the cluster had no key, its old key is
	// [PlainText].
	OldKeys [][]byte

	// GossipAllow lists the networks from which the node accepts gossip. It drops packets and connections
	// from other sources unread, and counts them in [Stats]. List the addresses of all nodes, because a node
	// outside of these networks is not heard. The list does not replace a key, because a sender can forge the
	// source of a packet. Default: all.
	GossipAllow []netip.Prefix

	// APIAddr is the address at which clients that look up a key reach the application of this node. roost
	// passes it on and does not interpret it. At most 255 bytes.
	APIAddr string

	// Zone, Labels and Capacity (in units of load) are also passed on to the other nodes. Zone and the value
	// of a label have at most 253 bytes, like a domain name.
	Zone     string
	Labels   map[string]string
	Capacity int64

	// Meta is what your application tells the other nodes about this one: at most 512 bytes, which roost does
	// not interpret. Meta cannot change while the agent runs, so use a label for what changes. The node's
	// whole record, with zone, labels and addresses, has at most 1,024 bytes, because it must fit into one
	// packet.
	Meta string

	// Weight is this node's share relative to others. Default 100. To start with a weight of 0, set
	// StartDraining instead.
	Weight uint32

	// SlowStart is how long a new node's weight takes to grow from a tenth of Weight to all of it, in ten
	// equal steps. So a cold node does not get its full share at once. If the strategy uses weights, each
	// step only moves partitions to this node. A slow start begins whenever the node begins to own partitions
	// while others already do: after a join, an Undrain or a fence. Nodes that start together have no slow
	// start. If nodes start one by one, the first carries the share of the others until their slow starts
	// end. SetWeight and Drain end a slow start. SlowStart has no effect with placement.LeastPartitions,
	// which fills nodes in passes. Default 0: none.
	SlowStart time.Duration

	// AppVersion is the version of this node's application, at most 64 bytes. The list of members shows it,
	// and the metrics count members by version, so that you can follow a deploy. Default: none.
	AppVersion string

	// HTTPAddr is the IP address and port at which this node's HTTP API listens (package clusterhttp), and
	// HTTPTLS says that the API uses TLS. Tools find the URL of the API in the list of members if its host is
	// the advertised host or 0.0.0.0: see Member.HTTP. Default: none.
	HTTPAddr string
	HTTPTLS  bool

	// StartDraining joins as a member that owns nothing until Undrain.
	StartDraining bool

	// Health reports whether the application of this node can serve. Its error says why the application is
	// unhealthy. An unhealthy node drains: it owns nothing, but stays a member. The agent calls Health every
	// HealthInterval, in its own goroutine and one call at a time. The context ends after HealthInterval, and
	// a call that has not returned by then counts as failed. Two failures in a row make the application
	// unhealthy, and two successes in a row make it healthy again. It is unhealthy until the first call has
	// succeeded. Only check what would work better on another node, because if all nodes are unhealthy, no
	// node owns anything. Default: none, always healthy.
	Health func(ctx context.Context) error

	// HealthInterval is the time between two calls of Health. Default: HeartbeatInterval.
	HealthInterval time.Duration

	// MinMembers is how many live members, including this node, the node must see to own anything. With fewer
	// it is isolated (PhaseIsolated). Members count in any state. The setting applies at the start, so ten
	// nodes with MinMembers 10 wait for each other. It applies in a split, too, where only a side with that
	// many members owns anything. An isolated node keeps its last table for lookups, and its pinned rooms.
	// Set MinMembers to the number of nodes minus as many as may stop at the same time, or lower. Nodes may
	// have different values. Default 1: no node is ever isolated.
	MinMembers int

	// DisableFlapDamping lets this node own partitions however often it comes and goes. By default, a node
	// that returns for the third time within ten TTLs, after crashes or after others lost it, is flapping: it
	// drains for 2 to 30 TTLs, longer each time it returns again. The flapping ends early if without this
	// node less than half of the members with a weight could own partitions. Member.FlappingUntil says when
	// the flapping ends. [Agent.Leave] resets the count.
	DisableFlapDamping bool

	// Handoff is how long this node waits at most, when a partition moves to it, until the old owner's run
	// has returned. So a partition runs on only one node at a time if the application uses [Agent.RunOwned].
	// If the old owner hangs, the run begins after this time without its answer, and the log names the old
	// owner. Nodes may have different values. Partitions that move from or to a node without handoff do not
	// wait. See docs/handoff.md. Default 0: none.
	Handoff time.Duration

	// Split is what the nodes do when a network split separates them: SplitContinue (the default) or
	// SplitMajority, which is for three or more nodes. It must be the same on all nodes.
	Split Split

	// SplitForget is how long SplitMajority counts a member that fell silent. If most nodes crash at once, or
	// of two nodes the one with the smaller id, the survivors own nothing for that long. If a split lasts
	// longer, both sides own everything. It must be the same on all nodes. Default 10 min.
	SplitForget time.Duration

	// Partitions is the number of partitions of the key space. It must be the same on all nodes. Default
	// 1,024, with which the shares of 10 nodes deviate by about 10 %. The deviation falls with the square
	// root of the partitions per node.
	Partitions int

	// Strategy assigns partitions to nodes. It must be the same on all nodes. The agent's loop calls it, so
	// it must return soon: see [Agent.LoopAge]. Default placement.Rendezvous().
	Strategy placement.Strategy

	// Network selects the defaults of the timings below. Default LAN.
	Network Network

	// HeartbeatInterval is how often the node renews its lease, ±10 %. It must be the same on all nodes.
	HeartbeatInterval time.Duration

	// LeaseTTL is how long a node may be silent before its lease expires. It must be the same on all nodes,
	// and at least 1.3 times the heartbeat interval. Use 2.5 times or more.
	LeaseTTL time.Duration

	// MaxSkew is how far a node's wall clock may be ahead of the cluster's. It must be the same on all nodes.
	// Default 5 s.
	MaxSkew time.Duration

	// Debounce is how long joins are collected into one change. Leaves take effect at once. Default 250 ms
	// (WAN 1 s, Local 10 ms).
	Debounce time.Duration

	// StartupGrace is how long a starting node waits for any seed to answer before it continues alone. It
	// tries each address at least once. The time starts again whenever a seed accepts a connection but does
	// not answer. Default 10 s (WAN 30 s, Local 2 s).
	StartupGrace time.Duration

	// RejoinInterval is how often the node tries seeds that are not members, and members that it lost within
	// the last day, ±20 %. Default 10 s (Local 1 s).
	RejoinInterval time.Duration

	// GossipInterval is how often the node sends news to GossipNodes random members. Default: every 200 ms to
	// 3 members (WAN: 500 ms, 4 members; Local: 20 ms, 3 members). GossipNodes is at most MaxGossipNodes. In
	// a cluster of more than about 1,500 nodes, each of these members gets several packets.
	GossipInterval time.Duration
	GossipNodes    int

	// Log receives the agent's log. Default slog.Default(). The handler may be slow, because a separate
	// goroutine calls it. If more than 4,096 lines wait, the oldest are dropped and counted in [Stats].
	Log *slog.Logger
}

// MaxGossipNodes is the highest value of Config.GossipNodes.
const MaxGossipNodes = 32

// Split is a policy for splits of the network.
type Split string

// The policies. With SplitContinue, each side owns all partitions: the cluster stays available, and
// partitions have an owner on each side. With SplitMajority, only the side with most of the members that were
// live owns anything. If both sides have half of the members, the side with the smallest id does. A node on
// another side is isolated (PhaseIsolated).
//
// Members that left do not count. A member whose process ended no longer counts after one or two LeaseTTLs,
// if most of the others are live. Processes that crash one after another and are replaced under new ids add
// up if less than two LeaseTTLs lie between a replacement and the next crash.
const (
	SplitContinue Split = "continue"
	SplitMajority Split = "majority"
)

const defaultCluster = "roost"

type timings struct {
	heartbeat, ttl, debounce, grace, rejoin, gossip time.Duration
	stream                                          time.Duration // limits a connection attempt and a full exchange
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

// clone returns a copy of c that shares no memory with it.
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

// Validate fills in the defaults and returns all problems of c as one error, or nil. Start calls it.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	problem := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("cluster: "+format, args...))
		}
	}
	self := c.record(longestAddr, math.MaxUint64) // the longest that it can become
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

// checkAdvertise rejects addresses to which no other node can send. It does not look up names, which happens
// at the start.
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
	// A heartbeat can be a tenth of the interval late, and a node's own lease ends an eighth of the TTL
	// early.
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
