package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

type agentSetting = setting[agentOptions]

// agentSettings lists the settings in the order of the help.
func agentSettings() []agentSetting {
	return slices.Concat(joinSettings(), equalSettings(), recordSettings(), roomSettings(), processSettings())
}

// joinSettings are about the way into the cluster.
func joinSettings() []agentSetting {
	type o = agentOptions
	return []agentSetting{
		{
			name: "id", arg: "ID", usage: "this node's name, unique in the cluster and the same after a restart (default: the host name)",
			apply: setNonempty(func(t *o) *string { return &t.cluster.ID }),
		},
		{
			name: "bind", arg: "HOST:PORT", def: "127.0.0.1:7946", usage: "gossip here, by UDP and TCP; port 0 takes a free one",
			apply: setNonempty(func(t *o) *string { return &t.cluster.Bind }),
		},
		{
			name: "advertise", arg: "HOST:PORT", usage: "other nodes reach this one here (default: what --bind says)",
			apply: setText(func(t *o) *string { return &t.cluster.Advertise }),
		},
		{
			name: "join", arg: "HOST:PORT,...", many: true, usage: "nodes to ask for the way in, or the name of an SRV record",
			apply: func(t *o, v string) error { t.cluster.Join = append(t.cluster.Join, v); return nil },
		},
		{
			name: "bootstrap", arg: "bool", usage: "do not wait for --join to answer: this may be the first node",
			apply: setBool(func(t *o) *bool { return &t.cluster.Bootstrap }),
		},
		{
			name: "cluster", arg: "NAME", def: "roost", usage: "the cluster's name; nodes of another one are not heard",
			apply: setNonempty(func(t *o) *string { return &t.cluster.Cluster }),
		},
		{
			name: "key-file", arg: "FILE", usage: "encrypt gossip with the key in FILE; roost keygen makes one",
			apply: setNonempty(func(t *o) *string { return &t.keyFile }),
		},
	}
}

// equalSettings have to be the same on all nodes, or nearly so.
func equalSettings() []agentSetting {
	type o = agentOptions
	return []agentSetting{
		{
			name: "partitions", arg: "N", def: strconv.Itoa(placement.DefaultPartitions), usage: "shares that the keys are cut into; the same on all nodes",
			apply: setNumber(1, placement.MaxPartitions, func(t *o, n int64) { t.cluster.Partitions = int(n) }),
		},
		{
			name: "strategy", arg: "NAME", def: "rendezvous", usage: "how partitions are assigned to nodes; the same on all nodes: " + placement.Strategies,
			apply: setStrategy(func(t *o) *placement.Strategy { return &t.cluster.Strategy }),
		},
		{
			name: "network", arg: "lan|wan|local", def: "lan", usage: "kind of network, which picks the timings",
			apply: setNetwork,
		},
		{
			name: "heartbeat", arg: "DURATION", usage: "renew the lease this often; the same on all nodes (default 2s; wan 5s, local 200ms)",
			apply: setDuration(func(t *o) *time.Duration { return &t.cluster.HeartbeatInterval }),
		},
		{
			name: "ttl", arg: "DURATION", usage: "a lease ends when it is this old; the same on all nodes (default 6s; wan 20s, local 1s)",
			apply: setDuration(func(t *o) *time.Duration { return &t.cluster.LeaseTTL }),
		},
		{
			name: "max-skew", arg: "DURATION", def: "5s", usage: "how far a node's clock may be ahead; the same on all nodes",
			apply: setDuration(func(t *o) *time.Duration { return &t.cluster.MaxSkew }),
		},
	}
}

// recordSettings are what a node tells others of itself.
func recordSettings() []agentSetting {
	type o = agentOptions
	return []agentSetting{
		{
			name: "api-addr", arg: "ADDR", usage: "where your own program is reached, told to whoever looks up a key",
			apply: setText(func(t *o) *string { return &t.cluster.APIAddr }),
		},
		{
			name: "zone", arg: "ZONE", usage: "told likewise",
			apply: setText(func(t *o) *string { return &t.cluster.Zone }),
		},
		{
			name: "label", arg: "K=V,...", many: true, usage: "told likewise",
			apply: addLabel,
		},
		{
			name: "capacity", arg: "N", usage: "units of load that this node can carry, told likewise",
			apply: setNumber(0, math.MaxInt64, func(t *o, n int64) { t.cluster.Capacity = n }),
		},
		{
			name: "weight", arg: "N", def: "100", usage: "this node's share relative to others",
			apply: setWeight,
		},
		{
			name: "ramp-up", arg: "DURATION", usage: "how long this node's weight takes to grow to --weight, in ten steps, when it begins to own while others do (default: no time)",
			apply: setDuration(func(t *o) *time.Duration { return &t.cluster.RampUp }),
		},
		{
			name: "start-draining", arg: "bool", usage: "own nothing until roost undrain",
			apply: setBool(func(t *o) *bool { return &t.cluster.StartDraining }),
		},
	}
}

// roomSettings are about rooms that are pinned to nodes by capacity. All but the
// last are the same on all nodes.
func roomSettings() []agentSetting {
	type o = agentOptions
	return []agentSetting{
		{
			name: "redis", arg: "URL", secret: true, usage: "pin rooms to nodes by capacity, on this Redis: redis://user:password@host:6379/0; other users of this machine can read a password here, so better use ROOST_REDIS or --redis-file",
			apply: setRedis,
		},
		{
			name: "redis-file", arg: "FILE", usage: "the same, with the URL in FILE",
			apply: setNonempty(func(t *o) *string { return &t.redisFile }),
		},
		{
			name: "pin-ttl", arg: "DURATION", usage: "how long a pin outlives the last that was heard of its room (default 1h)",
			apply: setDuration(func(t *o) *time.Duration { return &t.rooms.PinTTL }),
		},
		{
			name: "soft-ceiling", arg: "PERCENT", usage: "share of its --capacity up to which a node is given new rooms, as long as another has headroom (default 80)",
			apply: setNumber(1, maxCeiling, func(t *o, n int64) { t.rooms.SoftCeiling = int(n) }),
		},
		{
			name: "hard-ceiling", arg: "PERCENT", usage: "share of its --capacity above which a node is given no new room even if no other can take it (default 0: never refuse)",
			apply: setNumber(0, maxCeiling, func(t *o, n int64) { t.rooms.HardCeiling = int(n) }),
		},
		{
			name: "report-load", arg: "bool", usage: "report as this node's load what the rooms that are hosted here cost, n·(n-1) units each, instead of what is posted to /v1/load",
			apply: setBool(func(t *o) *bool { return &t.rooms.ReportLoad }),
		},
	}
}

// maxCeiling allows for nodes whose capacity is stated with care.
const maxCeiling = 1000

// processSettings are about this process.
func processSettings() []agentSetting {
	type o = agentOptions
	return []agentSetting{
		{
			name: "http", arg: "HOST:PORT", def: "127.0.0.1:8401", usage: "serve the HTTP API here; \"off\" serves none",
			apply: setHTTP,
		},
		{
			name: "http-token-file", arg: "FILE", usage: "bearer token that calls which change something must show; needed if --http is not loopback",
			apply: setNonempty(func(t *o) *string { return &t.tokenFile }),
		},
		{
			name: "shutdown-delay", arg: "DURATION", usage: "after SIGTERM go on answering for so long, owning nothing and with /readyz failing, until load balancers have turned away (default: five gossip intervals, 1s on a lan)",
			apply: setDuration(func(t *o) *time.Duration { return &t.shutdownDelay }),
		},
		{
			name: "log-format", arg: "text|json", def: "text", usage: "format of the log on standard error",
			apply: func(t *o, v string) error { t.logFormat = v; return oneOf(v, "text", "json") },
		},
		{
			name: "log-level", arg: "debug|info|warn|error", def: "info", usage: "least level that is logged",
			apply: setLevel,
		},
		{
			name: "exit-on-stdin-close", arg: "bool", usage: "end at once, without farewell, when standard input ends; for programs that start an agent as their child, so that it never outlives them",
			apply: setBool(func(t *o) *bool { return &t.stdinCloses }),
		},
		{
			name: "config", arg: "FILE", usage: "read YAML from FILE; its keys are the names of these flags",
			apply: setNonempty(func(t *o) *string { return &t.config }),
		},
	}
}

func checkHostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("want HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

func oneOf(v string, words ...string) error {
	if slices.Contains(words, v) {
		return nil
	}
	return fmt.Errorf("want %s", strings.Join(words, ", "))
}

func setNetwork(o *agentOptions, v string) error {
	n, ok := map[string]cluster.Network{"lan": cluster.LAN, "wan": cluster.WAN, "local": cluster.Local}[v]
	if !ok {
		return errors.New("want lan, wan or local")
	}
	o.cluster.Network = n
	return nil
}

func setStrategy[T any](field func(*T) *placement.Strategy) func(*T, string) error {
	return func(t *T, v string) error {
		s, err := placement.ParseStrategy(v)
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "placement: "))
		}
		*field(t) = s
		return nil
	}
}

func setWeight(o *agentOptions, v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil || n > lease.MaxWeight {
		return fmt.Errorf("want a whole number from 1 to %d", lease.MaxWeight)
	}
	if n == 0 {
		return errors.New("to join without owning anything, use --start-draining")
	}
	o.cluster.Weight = uint32(n)
	return nil
}

func addLabel(o *agentOptions, v string) error {
	name, value, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not of the form name=value", v)
	}
	if _, twice := o.cluster.Labels[name]; twice {
		return fmt.Errorf("label %q is given twice", name)
	}
	if o.cluster.Labels == nil {
		o.cluster.Labels = make(map[string]string)
	}
	o.cluster.Labels[name] = value
	return nil
}

func setHTTP(o *agentOptions, v string) error {
	o.http = v
	if v == httpOff {
		return nil
	}
	return checkHostPort(v)
}

func setLevel(o *agentOptions, v string) error {
	if err := o.logLevel.UnmarshalText([]byte(v)); err != nil {
		return errors.New("want debug, info, warn or error")
	}
	return nil
}
