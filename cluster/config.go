package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// Network selects the default timings for a kind of network.
type Network int

// These are the kinds of network, with their heartbeat intervals and lease TTLs.
const (
	LAN   Network = iota // one data center: 2 s, 6 s
	WAN                  // several regions: 5 s, 20 s
	Local                // tests on one machine: 200 ms, 6 s

	// Local is for tests of programs that embed an agent. A node is ready about 30 ms after its start. If a
	// node leaves or its process ends, the other nodes notice within 0.2 s. The TTL is as long as the TTL of
	// LAN, because a busy machine may pause a process for a second. A node whose lease expires owns nothing
	// for a while. A test that waits for a lease to expire should set a shorter LeaseTTL, or run package
	// clustertest in virtual time.
)

// Config configures an agent. Only ID is required: the zero value of every other field means its default.
// Start does not modify the caller's Config.
type Config struct {
	// ID names this node: 1 to 64 bytes of [A-Za-z0-9._:-] and square brackets. The ID must be unique in the
	// cluster. The ID should stay the same across restarts, because partitions are assigned to IDs.
	ID string

	// Cluster is the name of the cluster. Give each cluster its own name, because nodes reject packets with
	// another name. At most 64 bytes. Default "roost".
	Cluster string

	// Bind is the host:port to gossip on, over UDP and TCP. Port 0 picks a free port. Default
	// "127.0.0.1:7946", which other machines cannot reach.
	Bind string

	// Advertise is the host:port at which other nodes reach this one. Default: the bound address. If the node
	// is bound to 0.0.0.0 or ::, the default is the address from which this host reaches the seeds or,
	// without seeds, its default gateway. When the host loses that address, the node advertises the address
	// that the host has instead.
	Advertise string

	// Join lists the seeds through which this node joins the cluster. Each seed is a host:port or the name of an SRV
	// record. The node resolves the names again at each attempt. The node never stops trying seeds that are not
	// members, so that a long split heals. The node skips its own address. If all seeds are its own loopback addresses,
	// such as localhost, the node starts immediately.
	Join []string

	// Discover returns more seeds in the forms of Join, for example from a cloud API or a file. The agent calls
	// Discover whenever it resolves the names in Join: at each attempt to join, and then every RejoinInterval, so that
	// a long split heals. Calls do not overlap, and the context of each call ends after 5 s. The agent uses the first
	// 1,000 seeds. If Discover returns an error, the agent acts as if a seed did not answer.
	//
	// If Discover returns only this node, the node starts immediately, as the first node of its cluster. Therefore, a
	// list that contains this node must also contain all nodes that were added earlier. A single API or a single file
	// meets this condition. If Discover returns no node, the node waits for StartupGrace, because other nodes may not
	// be listed yet. Default: none.
	Discover func(ctx context.Context) ([]string, error)

	// Bootstrap makes the node start without waiting for seeds, because it may be the first node of its
	// cluster. A node without seeds always starts without waiting.
	Bootstrap bool

	// Key encrypts gossip with AES. The key must have 16, 24 or 32 bytes. Default: plain text. Without a key,
	// any host that can reach the port can impersonate any node.
	Key []byte

	// OldKeys let you change the key of a cluster. The node uses them only to decrypt what it receives. First add the
	// new key to OldKeys on every node. Then swap the new key with Key on every node. Finally, remove the old
	// key. If the cluster had no key, its old key is [PlainText].
	OldKeys [][]byte

	// GossipAllow lists the networks from which the node accepts gossip. The node drops packets and
	// connections from other sources without reading them, and counts them in [Stats]. Include the addresses
	// of all nodes, because the node ignores a node outside these networks. GossipAllow does not replace a
	// key, because a sender can forge the source of a packet. Default: all networks.
	GossipAllow []netip.Prefix

	// APIAddr is the address of the application on this node. Clients that look up a key send their requests
	// there. roost passes APIAddr on and does not interpret it. At most 255 bytes.
	APIAddr string

	// The node also passes Zone, Labels and Capacity (in units of load) on to the other nodes. Zone and each
	// label value have at most 253 bytes, like a domain name.
	Zone     string
	Labels   map[string]string
	Capacity int64

	// Resources is the capacity of each limited resource of this node, such as {"cpu": 800, "egress_mbit":
	// 10_000}, in any unit. The application reports with [Agent.SetUse] how much of each resource is in use,
	// and the tightest resource decides the node's load. Resources need a Capacity, and are not passed on to
	// the other nodes, which only see the load. At most MaxResources, with names of [a-zA-Z0-9_]. Default:
	// none, so the load is a single number.
	Resources map[string]int64

	// Meta is data of your application that this node passes on to the other nodes. Meta has at most 512
	// bytes, and roost does not interpret it. Meta cannot change while the agent runs, so use a label for
	// data that changes. The node's whole record, including zone, labels and addresses, has at most 1,024
	// bytes, because it must fit into one packet. roost reserves up to about 90 of them for fields
	// that it changes while the node runs.
	Meta string

	// Weight is this node's share of the partitions relative to other nodes. Default 100. To start with a
	// weight of 0, set StartDraining instead.
	Weight uint32

	// SlowStart is how long a new node takes to increase its weight from a tenth of Weight to all of it, in ten equal
	// steps. With a slow start, a cold node does not get its full share immediately. If the strategy uses weights, each
	// step only moves partitions to this node. A slow start begins whenever the node begins to own partitions while
	// other nodes already own some: after a join, an Undrain or a fence. Nodes that start together have no slow start.
	// If nodes start one by one, the first node also carries the share of the others until their slow starts finish.
	// SetWeight and Drain end a slow start. SlowStart has no effect with placement.LeastPartitions, which fills nodes
	// in passes. Default 0: none.
	SlowStart time.Duration

	// AutoWeight lets the weight of this node follow its load. If the load of this node relative to its capacity is
	// more than 10 % above or below the mean of all nodes, the node changes its weight by at most a quarter, at
	// most once per minute. The weight stays between a half of Weight and twice Weight, and SetWeight replaces
	// Weight. AutoWeight needs a Capacity, a load (Agent.SetLoad), and a strategy that uses weights. It is for
	// work that moves with its partition. Pinned rooms don't: see affinity.Config.Rebalance. Default false.
	AutoWeight bool

	// AppVersion is the version of this node's application, at most 64 bytes. The list of members shows
	// AppVersion, and the metrics count members by version, so that you can follow a deployment. Default:
	// none.
	AppVersion string

	// HTTPAddr is the IP address and port at which this node's HTTP API listens (package clusterhttp).
	// HTTPTLS means that the API uses TLS. Tools find the URL of the API in the list of members if the API
	// listens on the advertised host or on 0.0.0.0: see Member.HTTP. Default: none.
	HTTPAddr string
	HTTPTLS  bool

	// StartDraining makes the node join as a member that owns nothing until Undrain.
	StartDraining bool

	// Health reports whether the application of this node can serve. The error says why the application is
	// unhealthy. An unhealthy node drains: it owns nothing, but remains a member. The agent calls Health
	// every HealthInterval in a separate goroutine, and calls do not overlap. The context ends after
	// HealthInterval, and a call that has not returned by then counts as failed. Two failures in a row make
	// the application unhealthy, and two successes in a row make it healthy again. The application is
	// unhealthy until the first call has succeeded. Check only for problems that another node would not have,
	// because if all nodes are unhealthy, no node owns anything. Default: none, so the application is always
	// healthy.
	Health func(ctx context.Context) error

	// HealthInterval is the time between two calls to Health. Default: HeartbeatInterval.
	HealthInterval time.Duration

	// MinMembers is the minimum number of live members that the node must see to own anything. The number
	// includes this node and members in any state. While the node sees fewer members, it is isolated
	// (PhaseIsolated). The setting also applies when nodes start: ten nodes with MinMembers 10 wait for each
	// other. In a split, only a side with at least MinMembers members owns anything. An isolated node keeps
	// its last table for lookups, and its pinned rooms. Set MinMembers to at most the number of nodes minus
	// the number that may be down at the same time. Nodes may have different values. Default 1: no node is
	// ever isolated.
	MinMembers int

	// DisableFlapDamping lets this node own partitions no matter how often it returns after failures. By
	// default, a node is flapping if it returns for the third time within ten TTLs. A return counts if the
	// node crashed before, or if other nodes lost it. While a node is flapping, it drains for 2 to 30 TTLs,
	// longer each time that it returns again. Flapping ends early if, without this node, fewer than half of
	// the members with a weight could own partitions. Member.FlappingUntil is when the flapping ends.
	// [Agent.Leave] resets the count.
	DisableFlapDamping bool

	// Handoff is the maximum time that this node waits before it runs a partition that moves to it. The wait
	// ends earlier if the run on the old owner has returned. If the application uses [Agent.RunOwned], a
	// partition therefore runs on only one node at a time. If the old owner hangs, this node starts the run
	// after Handoff, and logs the name of the old owner. Nodes may have different values. If one of the two
	// nodes has no handoff, the partition moves without waiting. See docs/handoff.md. Default 0: none.
	Handoff time.Duration

	// Split determines what the nodes do when a network split separates them. The value is SplitContinue (the
	// default) or SplitMajority, which is for three or more nodes. All nodes must have the same value.
	Split Split

	// SplitForget is how long SplitMajority counts a member after its last heartbeat. If most nodes crash at the same
	// time, the survivors own nothing for this duration. In a cluster of two nodes, the survivor also owns nothing if
	// the node with the smaller ID crashes. If a split lasts longer than SplitForget, both sides own everything. All
	// nodes must have the same value. Default 10 min.
	SplitForget time.Duration

	// Partitions is the number of partitions of the key space. All nodes must have the same value. Default
	// 1,024. With the default, the shares of 10 nodes deviate by about 10 %. The deviation is inversely
	// proportional to the square root of the number of partitions per node.
	Partitions int

	// Strategy assigns partitions to nodes. All nodes must have the same value. The agent's loop calls the
	// strategy, so it must return quickly: see [Agent.LoopAge]. Default placement.Rendezvous().
	Strategy placement.Strategy

	// Network selects the defaults of the timings below. Default LAN.
	Network Network

	// HeartbeatInterval is how often the node renews its lease, ±10 %. All nodes must have the same value.
	HeartbeatInterval time.Duration

	// LeaseTTL is the time after the last heartbeat at which a node's lease expires. All nodes must have the
	// same value. LeaseTTL must be at least 1.3 times the heartbeat interval. Use 2.5 times or more.
	LeaseTTL time.Duration

	// MaxSkew is how far a node's wall clock may be ahead of the cluster's. All nodes must have the same
	// value. Default 5 s.
	MaxSkew time.Duration

	// Debounce is how long the node collects joins before it applies all of them in one change. Leaves take effect
	// immediately. Default 250 ms (WAN 1 s, Local 10 ms).
	Debounce time.Duration

	// StartupGrace is how long a starting node waits for any seed to answer before it continues alone. The
	// node tries each address at least once. The time restarts whenever a seed accepts a connection but does
	// not answer. Default 10 s (WAN 30 s, Local 2 s).
	StartupGrace time.Duration

	// RejoinInterval is how often the node tries seeds that are not members, and members that it lost within
	// the last day, ±20 %. Default 10 s (Local 1 s).
	RejoinInterval time.Duration

	// GossipInterval is how often the node sends recent updates to GossipNodes random members. Default: every
	// 200 ms to 3 members (WAN: 500 ms, 4 members; Local: 20 ms, 3 members). GossipNodes is at most
	// MaxGossipNodes. In a cluster of more than about 1,500 nodes, the node sends several packets to each of
	// the GossipNodes members.
	GossipInterval time.Duration
	GossipNodes    int

	// Log receives the agent's log. Default slog.Default(). The handler may be slow, because a separate
	// goroutine calls it. If more than 4,096 lines are waiting, the agent drops the oldest lines and counts
	// them in [Stats].
	Log *slog.Logger
}

// MaxGossipNodes is the highest value of Config.GossipNodes.
const MaxGossipNodes = 32

// Split is a policy for network splits.
type Split string

// These are the policies for a split. With SplitContinue, each side owns all partitions, so the cluster
// remains available, and each partition has an owner on each side. With SplitMajority, only the side with
// most of the previously live members owns anything. If both sides have half of the members, the side with
// the smallest ID owns the partitions. Nodes on the other side are isolated (PhaseIsolated).
//
// Members that left do not count. If most of the other members are live, a member whose process ended stops
// counting after one or two LeaseTTLs. Processes can crash one after another and be replaced under new IDs.
// If less than two LeaseTTLs pass between a replacement and the next crash, SplitMajority still counts all
// crashed members.
const (
	SplitContinue Split = "continue"
	SplitMajority Split = "majority"
)

const defaultCluster = "roost"

type timings struct {
	heartbeat, ttl, debounce, grace, rejoin, gossip time.Duration
	stream                                          time.Duration // limit of a connection attempt and of a full exchange
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
	c.Resources = maps.Clone(c.Resources)
	c.GossipAllow = slices.Clone(c.GossipAllow)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate fills in the defaults and returns all problems of c as one error, or nil. Start calls Validate.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	problem := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("cluster: "+format, args...))
		}
	}
	self := c.record("", 0)
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
		"the settings that nodes compare take %d bytes, at most %d: the name of Strategy has %d bytes", size,
		gossip.MaxMeta, len(c.Strategy.Name()))
	problem(strings.ContainsAny(c.Strategy.Name(), "=\n"), "the name of Strategy contains = or a line break: %q", c.Strategy.Name())
	problem(c.GossipNodes < 1 || c.GossipNodes > MaxGossipNodes, "GossipNodes is %d; it must be 1 to %d", c.GossipNodes, MaxGossipNodes)
	c.checkIsolation(problem)
	c.checkTimings(problem)
	c.checkResources(problem)
	return errors.Join(errs...)
}

// checkAdvertise rejects addresses to which no other node can send. checkAdvertise does not resolve names,
// because Start does that later.
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
		"OldKeys are set without a Key: to send plain text but also accept keys, set Key to PlainText")
	for _, key := range c.OldKeys {
		problem(!aesKey(key) && string(key) != PlainText, "OldKeys has a key of %d bytes; it must have 16, 24 or 32, or be PlainText", len(key))
	}
}

func (c Config) checkTimings(problem func(bad bool, format string, args ...any)) {
	// A heartbeat can be late by a tenth of the interval, and a node considers its own lease expired an
	// eighth of the TTL early.
	problem(10*c.LeaseTTL < 13*c.HeartbeatInterval,
		"LeaseTTL (%v) must be at least 1.3 times HeartbeatInterval (%v), because otherwise leases expire between two heartbeats",
		c.LeaseTTL, c.HeartbeatInterval)
	problem(c.AutoWeight && c.Capacity == 0, "AutoWeight needs a Capacity, because it compares the load with it")
	problem(c.Handoff != 0 && (c.Handoff < c.LeaseTTL || c.Handoff > 24*time.Hour),
		"Handoff is %v; it must be 0 (none), or %v (LeaseTTL, within which a silent node answers or is gone) to 24h",
		c.Handoff, c.LeaseTTL)
	problem(c.LeaseTTL > time.Hour, "LeaseTTL is %v, at most 1h", c.LeaseTTL)
	problem(c.Health != nil && c.HealthInterval < 10*time.Millisecond, "HealthInterval is %v, at least 10ms", c.HealthInterval)
	shortest := node.SlowStartSteps * c.Debounce // the node would merge steps within one debounce
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

// warnings describes the settings that are allowed but risky.
func (c Config) warnings() []string {
	var w []string
	if 2*c.LeaseTTL < 5*c.HeartbeatInterval {
		w = append(w, fmt.Sprintf("LeaseTTL (%v) is less than 2.5 times HeartbeatInterval (%v): a lease can expire after one lost heartbeat",
			c.LeaseTTL, c.HeartbeatInterval))
	}
	plain := func(k []byte) bool { return string(k) == PlainText }
	if slices.ContainsFunc(c.keys(), plain) && !loopback(c.Bind) {
		w = append(w,
			fmt.Sprintf("gossip on %s also accepts plain text: any host that reaches the port can impersonate any node; remove plain text once all nodes encrypt",
				c.Bind))
	}
	if len(c.Key) == 0 && !loopback(c.Bind) {
		w = append(w,
			fmt.Sprintf("gossip on %s is not encrypted: any host that reaches the port can impersonate any node; set a Key (--key-file)",
				c.Bind))
		if c.Cluster == defaultCluster {
			w = append(w,
				fmt.Sprintf("Cluster has the default name %q: a wrong seed in another cluster with this name would merge the two clusters; set a different name (--cluster)",
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
