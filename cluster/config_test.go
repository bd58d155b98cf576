package cluster_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// longName is a strategy with a name so long that the message has no room for the founders of a cluster.
type longName struct{ placement.Strategy }

func (longName) Name() string { return strings.Repeat("n", 350) }

// The settings that nodes compare must fit into one message together with the identity of the cluster, which grows
// later.
func TestLongStrategyName(t *testing.T) {
	cfg := cluster.Config{ID: "a", Strategy: longName{placement.Rendezvous()}}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "the name of Strategy has 350") {
		t.Errorf("error %v", err)
	}
}

func TestConfigProblems(t *testing.T) {
	bad := cluster.Config{
		ID:                "a b",
		Bind:              "nowhere",
		Advertise:         "x",
		Join:              []string{"y", ":", ":7946", "seed:ntp", "dns+name:7946", "http://name:7946"},
		Key:               []byte("short"),
		Partitions:        placement.MaxPartitions + 1,
		GossipNodes:       99,
		Weight:            lease.MaxWeight + 1,
		Capacity:          -1,
		HeartbeatInterval: 3 * time.Second,
		LeaseTTL:          3 * time.Second,
		MaxSkew:           -1,
		Debounce:          -1,
		Cluster:           strings.Repeat("c", 65),
		Zone:              strings.Repeat("z", 254),
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, part := range []string{
		`node id "a b"`, `Bind "nowhere"`, `Advertise "x"`, `Join "y"`, `Join ":"`, `Join ":7946"`,
		`Join "seed:ntp"`, `Join "dns+name:7946"`, `Join "http://name:7946"`, "Key has 5 bytes",
		"Partitions is 65537",
		"GossipNodes is 99", "weight 1000001", "capacity -1", "LeaseTTL (3s)", "MaxSkew", "Debounce",
		"Cluster has 65", "zone has 254",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not contain %q:\n%v", part, err)
		}
	}
	if a, err := cluster.Start(t.Context(), bad); err == nil {
		_ = a.Close()
		t.Error("started")
	}
	good := cluster.Config{ID: "a"}
	if err := good.Validate(); err != nil {
		t.Errorf("defaults are faulty: %v", err)
	}
	if d := good.WithDefaults(); d.LeaseTTL != 6*time.Second || d.HeartbeatInterval != 2*time.Second ||
		d.MaxSkew != 5*time.Second || d.Partitions != 1024 || d.Bind != "127.0.0.1:7946" {
		t.Errorf("defaults: %+v", d)
	}
}

// An advertised address that other nodes cannot reach is rejected. The error says what to set, and also lists the other
// problems.
func TestAdvertiseProblems(t *testing.T) {
	for _, bad := range []string{
		":7946", "[]:7946", "0.0.0.0:7946", "[::]:7946", "[::ffff:0.0.0.0]:7946", "224.0.0.1:7946", "[ff02::1]:7946", "255.255.255.255:7946",
	} {
		err := cluster.Config{ID: "a", Advertise: bad, GossipNodes: 99}.Validate()
		if err == nil || !strings.Contains(err.Error(), `Advertise "`+bad) ||
			!strings.Contains(err.Error(), "other nodes reach this one") ||
			!strings.Contains(err.Error(), "GossipNodes") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, good := range []string{
		"", "10.0.0.1:7946", "[10.0.0.1]:7946", "[fd00::1]:7946", "[fe80::1%eth0]:7946", "127.0.0.1:7946",
		"node-1:7946", "10.0.0.1:0",
	} {
		if err := (cluster.Config{ID: "a", Advertise: good}).Validate(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// Each setting is tested at its bounds and beyond. The error must name the setting.
func TestConfigBounds(t *testing.T) {
	networks := func(all ...string) (prefixes []netip.Prefix) {
		for _, p := range all {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		return prefixes
	}
	join := func(seed string) cluster.Config {
		return cluster.Config{Join: []string{seed}, GossipAllow: networks("10.0.0.0/8", "fd00::/8")}
	}
	long := cluster.Config{LeaseTTL: time.Hour, HeartbeatInterval: time.Minute} // longer than the default of SplitForget
	longMajority := long
	longMajority.Split = cluster.SplitMajority
	for _, c := range []struct {
		cfg  cluster.Config
		want string // part of the error; "" = valid
	}{
		{cluster.Config{SlowStart: 2500 * time.Millisecond}, ""},
		{cluster.Config{SlowStart: 24 * time.Hour}, ""},
		{cluster.Config{SlowStart: -time.Minute}, "SlowStart is "},
		{cluster.Config{SlowStart: 1}, "SlowStart is "},
		{cluster.Config{SlowStart: 2499 * time.Millisecond}, "SlowStart is "},
		{cluster.Config{SlowStart: 24*time.Hour + 1}, "SlowStart is "},
		{cluster.Config{MinMembers: 1}, ""},
		{cluster.Config{MinMembers: lease.MaxNodes}, ""},
		{cluster.Config{MinMembers: -1}, "it must be 1 (never isolated) to"},
		{cluster.Config{MinMembers: lease.MaxNodes + 1}, "it must be 1 (never isolated) to"},
		{cluster.Config{Split: cluster.SplitMajority}, ""},
		{cluster.Config{Split: "quorum"}, "Split"},
		{cluster.Config{Split: cluster.SplitMajority, SplitForget: time.Second}, "SplitForget"}, // less than the TTL
		{cluster.Config{Split: cluster.SplitMajority, SplitForget: 25 * time.Hour}, "SplitForget"},
		{long, ""},
		{longMajority, "SplitForget"},
		{cluster.Config{OldKeys: [][]byte{make([]byte, 16)}}, "OldKeys are set without a Key"},
		{cluster.Config{Key: make([]byte, 16), OldKeys: [][]byte{make([]byte, 5)}}, "OldKeys has a key of 5 bytes"},
		{cluster.Config{GossipAllow: append(networks("10.0.0.0/8"), netip.Prefix{})}, "at index 1"},
		{cluster.Config{GossipAllow: networks("10.0.0.0/8", "::ffff:10.0.0.0/104")}, "at index 1"},
		{join("10.1.2.3:7946"), ""},
		{join("[fd00::7]:7946"), ""},
		{join("[::ffff:10.1.2.3]:7946"), ""},
		{join("seed.example.org:7946"), ""}, // names are not looked up
		{join("_roost._udp.example.org"), ""},
		{join("192.168.1.1:7946"), "192.168.1.1:7946"}, // its answers would be dropped
		{join("[fe80::1%eth0]:7946"), "[fe80::1%eth0]:7946"},
		{cluster.Config{Join: []string{"192.168.1.1:7946"}}, ""},
		{cluster.Config{Join: []string{"[fe80::1%eth0]:7946"}}, ""},
		{cluster.Config{HTTPAddr: "localhost:8401"}, "HTTPAddr"},
		{cluster.Config{HTTPAddr: ":8401"}, "HTTPAddr"},
		{cluster.Config{HTTPAddr: "10.0.0.1"}, "HTTPAddr"},
	} {
		c.cfg.ID = "a"
		err := c.cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}
