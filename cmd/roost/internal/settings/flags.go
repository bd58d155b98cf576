package settings

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Group is a titled group of an agent's settings.
type Group struct {
	Title    string
	Settings []Setting
}

// Groups returns the settings of an agent. Applying them changes a. Settings that most clusters need come
// first.
func (a *Agent) Groups() []Group {
	return []Group{
		{"Basic", a.basic()},
		{"Rooms", a.rooms()},
		{"HTTP", a.http()},
		{"Timing", a.timing()},
		{"Advanced", a.advanced()},
	}
}

// Settings returns the settings of all groups.
func (a *Agent) Settings() (all []Setting) {
	for _, g := range a.Groups() {
		all = append(all, g.Settings...)
	}
	return all
}

func (a *Agent) basic() []Setting {
	c := &a.Cluster
	return []Setting{
		{
			Name: "id", Arg: "ID", Set: Nonempty(&c.ID),
			Usage: "this node's name, unique in the cluster and the same after a restart (default: the host name)",
		},
		{
			Name: "bind", Arg: "HOST:PORT", Default: "127.0.0.1:7946", Set: Nonempty(&c.Bind),
			Usage: "gossip on this address, over UDP and TCP; port 0 selects a free port",
		},
		{
			Name: "advertise", Arg: "HOST:PORT", Set: Text(&c.Advertise),
			Usage: "address where other nodes reach this node (default: the address of --bind, " +
				"or if that is 0.0.0.0 or ::, the address from which this host reaches the seeds)",
		},
		{
			Name: "join", Arg: "HOST:PORT,...", List: true, Set: func(v string) error { c.Join = append(c.Join, v); return nil },
			Usage: "addresses of members to join, or the name of an SRV record",
		},
		{
			Name: "cluster", Arg: "NAME", Default: "roost", Set: Nonempty(&c.Cluster),
			Usage: "the cluster's name; the node drops messages from other clusters",
		},
		{
			Name: "key-file", Arg: "FILE", Set: a.setKeyFile,
			Usage: "encrypt gossip with the first key in FILE (see roost keygen), and also accept the other keys",
		},
		{
			Name: "partitions", Arg: "N", Default: strconv.Itoa(placement.DefaultPartitions),
			Set:   Number(&c.Partitions, 1, placement.MaxPartitions),
			Usage: "number of partitions that keys are divided into; the same on all nodes",
		},
		{
			Name: "min-members", Arg: "N", Default: "1", Set: Number(&c.MinMembers, 1, lease.MaxNodes),
			Usage: "own nothing while fewer than N members are live, including this node",
		},
		{
			Name: "split", Arg: "continue|majority", Default: string(cluster.SplitContinue), Set: a.setSplit,
			Usage: "who owns partitions in a network split: continue lets each side own all of them, majority only the side " +
				"with most of the previous members (for three nodes or more); the same on all nodes",
		},
		{
			Name: "http", Arg: "HOST:PORT", Default: "127.0.0.1:8401", Set: a.setHTTP,
			Usage: `serve the HTTP API on this address; "off" disables it`,
		},
		{
			Name: "api-addr", Arg: "ADDR", Set: a.setAPIAddr,
			Usage: "address of your application on this node; lookups of keys return it",
		},
		{
			Name: "zone", Arg: "ZONE", Set: Text(&c.Zone),
			Usage: "zone of this node; roost members shows it, and strategies with +zones use it",
		},
		{
			Name: "weight", Arg: "N", Default: "100", Set: a.setWeight,
			Usage: "this node's share relative to other nodes",
		},
		{
			Name: "log-format", Arg: "text|json", Default: "text", Set: OneOf(&a.LogFormat, "text", "json"),
			Usage: "format of the log on standard error",
		},
		{
			Name: "log-level", Arg: "debug|info|warn|error", Default: "info", Set: a.setLevel,
			Usage: "minimum level of messages in the log",
		},
		a.configFile(),
	}
}

// maxCeiling is above 100 to allow for nodes whose configured capacity is too low.
const maxCeiling = 1000

// rooms returns the settings for rooms that are pinned to nodes by capacity.
func (a *Agent) rooms() []Setting {
	c := &a.Cluster
	return []Setting{
		{
			Name: "capacity", Arg: "N", Set: Number(&c.Capacity, 0, math.MaxInt64),
			Usage: "units of load that this node can carry",
		},
		{
			Name: "redis", Arg: "URL", Secret: true, Set: StoreURL(&a.Store),
			Usage: "pin rooms to nodes in this Redis: redis://user:password@host:6379/0 (a single agent can use memory: instead). " +
				"Other users of the machine can read a password here, but not in ROOST_REDIS or --redis-file",
		},
		{
			Name: "redis-file", Arg: "FILE", Set: a.secret(func(b []byte) error { return StoreURL(&a.Store)(string(b)) }),
			Usage: "like --redis, but read the URL from FILE",
		},
		{
			Name: "pin-ttl", Arg: "DURATION", Set: Duration(&a.Rooms.PinTTL),
			Usage: "stop hosting a room this long after its last request; its pin expires at most this long after that (default 1h)",
		},
		{
			Name: "soft-ceiling", Arg: "PERCENT", Set: Number(&a.Rooms.SoftCeiling, 1, maxCeiling),
			Usage: "above this percentage of --capacity, prefer other nodes for new rooms (default 80)",
		},
		{
			Name: "hard-ceiling", Arg: "PERCENT", Set: Number(&a.Rooms.HardCeiling, 0, maxCeiling),
			Usage: "above this percentage of --capacity, place no new rooms on a node (default 0: never refuse)",
		},
		{
			Name: "report-load", Arg: "bool", Set: Bool(&a.Rooms.ReportLoad),
			Usage: "compute this node's load from the rooms that it hosts, n·(n-1) units for a room of n; " +
				"/v1/load then accepts no units",
		},
	}
}

func (a *Agent) http() []Setting {
	return []Setting{
		{
			Name: "http-token-file", Arg: "FILE", Set: a.secret(setTokens(&a.Tokens)),
			Usage: "require a bearer token from FILE for calls that change something; each line is a valid token. " +
				"Required unless --http is loopback or --http-client-ca is set",
		},
		{
			Name: "http-token-reads", Arg: "bool", Set: Bool(&a.TokenReads),
			Usage: "also require a token for all other calls, except /healthz, /readyz and /reconnect.mjs; " +
				"in a browser, the token is the password",
		},
		{
			Name: "http-read-token-file", Arg: "FILE", Set: a.secret(setTokens(&a.ReadTokens)),
			Usage: "file with tokens that allow only calls that change nothing; implies --http-token-reads",
		},
		{
			Name: "http-host", Arg: "NAME,...", List: true, Set: func(v string) error { a.Hosts = append(a.Hosts, v); return nil },
			Usage: "public DNS names of this node that clients may use over plain http without a token",
		},
		{
			Name: "http-tls-cert", Arg: "FILE", Set: Nonempty(&a.TLS.Cert),
			Usage: "serve https with the certificate (PEM, with its chain) in FILE; a changed file is read again",
		},
		{
			Name: "http-tls-key", Arg: "FILE", Set: Nonempty(&a.TLS.Key),
			Usage: "private key of --http-tls-cert",
		},
		{
			Name: "http-client-ca", Arg: "FILE", Set: Nonempty(&a.TLS.ClientCA),
			Usage: "require a client certificate from a CA in FILE, except for /healthz and /readyz",
		},
	}
}

func (a *Agent) timing() []Setting {
	c := &a.Cluster
	return []Setting{
		{
			Name: "network", Arg: "lan|wan|local", Default: "lan", Set: a.setNetwork,
			Usage: "kind of network, which sets the default timings",
		},
		{
			Name: "heartbeat", Arg: "DURATION", Set: Duration(&c.HeartbeatInterval),
			Usage: "renew the lease this often; the same on all nodes (default 2s; wan 5s, local 200ms)",
		},
		{
			Name: "ttl", Arg: "DURATION", Set: Duration(&c.LeaseTTL),
			Usage: "a lease expires this long after the last heartbeat; the same on all nodes (default 6s; wan 20s)",
		},
		{
			Name: "max-skew", Arg: "DURATION", Default: "5s", Set: Duration(&c.MaxSkew),
			Usage: "how far a node's clock may be ahead; the same on all nodes. Raise it if clocks are not synchronized",
		},
		{
			Name: "handoff", Arg: "DURATION", Set: Duration(&c.Handoff),
			Usage: "when a partition moves, wait at most this long for its previous owner to stop; " +
				"at least --ttl (default: do not wait)",
		},
		{
			Name: "slow-start", Arg: "DURATION", Set: Duration(&c.SlowStart),
			Usage: "after a start or a drain in a running cluster, grow to --weight over this time, in ten steps, " +
				"so that cold caches can warm up (default: at once)",
		},
		{
			Name: "split-forget", Arg: "DURATION", Default: "10m", Set: Duration(&c.SplitForget),
			Usage: "with --split majority, a silent member counts for this long; the same on all nodes. " +
				"Shorten it if you often lose hosts for good",
		},
		{
			Name: "shutdown-delay", Arg: "DURATION", Set: Duration(&a.ShutdownDelay),
			Usage: "after SIGTERM, keep answering this long while /readyz fails, so that load balancers stop sending requests " +
				"(default: 0s; with rooms five gossip intervals, 1s on a lan)",
		},
		{
			Name: "redis-timeout", Arg: "DURATION", Set: Duration(&a.Rooms.Budget),
			Usage: "a join waits at most this long for Redis, then it is degraded; allow three round trips or more " +
				"(default 150ms; wan 1s)",
		},
	}
}

func (a *Agent) advanced() []Setting {
	c := &a.Cluster
	return append(a.loads(), []Setting{
		{
			Name: "bootstrap", Arg: "bool", Set: Bool(&c.Bootstrap),
			Usage: "do not wait until a --join address answers; use it for the first node of a new cluster",
		},
		{
			Name: "require-key", Arg: "bool", Set: Bool(&a.requireKey),
			Usage: "do not start without --key-file: without a key, any host that reaches --bind can join",
		},
		{
			Name: "gossip-allow", Arg: "CIDR,...", List: true, Set: a.addNetwork,
			Usage: "accept gossip only from these networks, such as 10.0.0.0/8; they must contain the addresses of all nodes " +
				"(default: all networks)",
		},
		{
			Name: "gossip-nodes", Arg: "N", Set: Number(&c.GossipNodes, 1, cluster.MaxGossipNodes),
			Usage: "each gossip round sends to this many random members. Raise it if the network loses more than a tenth of packets " +
				"(default 3; wan 4)",
		},
		{
			Name: "strategy", Arg: "NAME", Default: "rendezvous", Set: Strategy(&c.Strategy),
			Usage: "how partitions are assigned to nodes; the same on all nodes: " + placement.Strategies,
		},
		{
			Name: "label", Arg: "K=V,...", List: true, Set: a.addLabel,
			Usage: "labels of this node, for other members to see; --scope selects members by label",
		},
		{
			Name: "scope", Arg: "NAME=LABEL:VALUE,...", List: true, Set: a.addScope,
			Usage: "another table, of only the members with this label, or in a zone with NAME=zone:ZONE. Lookups name it: " +
				"roost place --scope NAME. Must be the same on all nodes, which roost does not check",
		},
		{
			Name: "app-version", Arg: "TEXT", Set: Text(&c.AppVersion),
			Usage: "version of your application, in at most 64 bytes; members and metrics show it during a rollout",
		},
		{
			Name: "no-flap-damping", Arg: "bool", Set: Bool(&c.DisableFlapDamping),
			Usage: "own partitions even after three returns from crashes or network failures within ten TTLs: " +
				"for tests that kill this node again and again",
		},
		{
			Name: "start-draining", Arg: "bool", Set: Bool(&c.StartDraining),
			Usage: "own nothing until roost undrain, so that you can check a new node before it serves",
		},
		{
			Name: "exit-on-stdin-close", Arg: "bool", Set: Bool(&a.StdinCloses),
			Usage: "exit at once, without a leave message, when standard input is closed: " +
				"for an agent that is a child process of your program",
		},
	}...)
}

// loads returns the advanced settings for what follows the load of a node.
func (a *Agent) loads() []Setting {
	c := &a.Cluster
	return []Setting{
		{
			Name: "auto-weight", Arg: "bool", Set: Bool(&c.AutoWeight),
			Usage: "let --weight follow the load, between half and twice its value, so that busy nodes own fewer partitions. " +
				"It needs --capacity and a load (POST /v1/load or --report-load)",
		},
		{
			Name: "resources", Arg: "NAME=N,...", List: true, Set: a.addResource,
			Usage: "capacity of up to four resources, such as cpu=800,egress_mbit=10000, besides --capacity. " +
				"POST /v1/load reports their use, and the tightest resource decides the load",
		},
		{
			Name: "strict-ceiling", Arg: "bool", Set: Bool(&a.Rooms.StrictCeiling),
			Usage: "while Redis does not answer, refuse new rooms instead of placing them above --hard-ceiling",
		},
		{
			Name: "limit-growth", Arg: "bool", Set: Bool(&a.Rooms.LimitGrowth),
			Usage: "refuse participants whose room would bring this node above --hard-ceiling; the error names a node for a relay",
		},
		{
			Name: "rebalance", Arg: "PERCENT", Set: Number(&a.Rooms.Rebalance, 0, maxCeiling),
			Usage: "above this share of --capacity, move rooms to nodes with headroom until the load is not above --soft-ceiling. " +
				"Each move interrupts a call. 90 is a good value (default 0: never)",
		},
	}
}

func (a *Agent) configFile() Setting {
	return Setting{
		Name: "config", Arg: "FILE", Set: Nonempty(&a.config),
		Usage: "read YAML from FILE, with flag names as keys",
	}
}

// HostPort checks that v has the form HOST:PORT.
func HostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("want HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// StoreURL accepts the URL of a store for pins.
func StoreURL(to *string) func(string) error {
	return func(v string) error {
		*to = v
		return store.CheckURL(v)
	}
}

// Strategy accepts the name of a placement strategy.
func Strategy(to *placement.Strategy) func(string) error {
	return func(v string) (err error) {
		if *to, err = placement.ParseStrategy(v); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "placement: "))
		}
		return nil
	}
}

func (a *Agent) setNetwork(v string) error {
	n, ok := map[string]cluster.Network{"lan": cluster.LAN, "wan": cluster.WAN, "local": cluster.Local}[v]
	if !ok {
		return errors.New("want lan, wan or local")
	}
	a.Cluster.Network = n
	return nil
}

func (a *Agent) setSplit(v string) error {
	a.Cluster.Split = cluster.Split(v)
	if a.Cluster.Split != cluster.SplitContinue && a.Cluster.Split != cluster.SplitMajority {
		return fmt.Errorf("want %s or %s", cluster.SplitContinue, cluster.SplitMajority)
	}
	return nil
}

func (a *Agent) setWeight(v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil || n > lease.MaxWeight {
		return fmt.Errorf("want a whole number from 1 to %d", lease.MaxWeight)
	}
	if n == 0 {
		return errors.New("to join without owning anything, use --start-draining")
	}
	a.Cluster.Weight = uint32(n)
	return nil
}

// setAPIAddr accepts [10.0.0.1]:3478 as 10.0.0.1:3478, because a Kubernetes manifest that supports IPv6 has
// brackets around every address.
func (a *Agent) setAPIAddr(v string) error {
	a.Cluster.APIAddr = v
	if host, port, err := net.SplitHostPort(v); err == nil {
		a.Cluster.APIAddr = net.JoinHostPort(host, port)
	}
	return nil
}

func (a *Agent) addLabel(v string) error {
	name, value, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q does not have the form name=value", v)
	}
	if _, twice := a.Cluster.Labels[name]; twice {
		return fmt.Errorf("label %q is given twice", name)
	}
	if a.Cluster.Labels == nil {
		a.Cluster.Labels = make(map[string]string)
	}
	a.Cluster.Labels[name] = value
	return nil
}

func (a *Agent) addResource(v string) error {
	name, value, ok := strings.Cut(v, "=")
	n, err := strconv.ParseInt(value, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q does not have the form name=N, such as cpu=800", v)
	}
	if _, twice := a.Cluster.Resources[name]; twice {
		return fmt.Errorf("resource %q is given twice", name)
	}
	if a.Cluster.Resources == nil {
		a.Cluster.Resources = make(map[string]int64)
	}
	a.Cluster.Resources[name] = n
	return nil
}

func (a *Agent) addNetwork(v string) error {
	network, err := netip.ParsePrefix(v)
	if err != nil {
		return fmt.Errorf("%q is not a network such as 10.0.0.0/8", v)
	}
	a.Cluster.GossipAllow = append(a.Cluster.GossipAllow, network)
	return nil
}

func (a *Agent) setHTTP(v string) error {
	a.HTTP = v
	if v == Off {
		return nil
	}
	return HostPort(v)
}

func (a *Agent) setLevel(v string) error {
	if err := a.LogLevel.UnmarshalText([]byte(v)); err != nil {
		return errors.New("want debug, info, warn or error")
	}
	return nil
}
