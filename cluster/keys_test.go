package cluster_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A key is changed by three rolling restarts, and at no time is there a node that
// another does not understand.
func TestKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key = first }})
		c.Start("a", "b", "c")
		c.WaitAgreed(3 * time.Second)
		for _, keys := range []struct {
			key []byte
			old [][]byte
		}{{first, [][]byte{second}}, {second, [][]byte{first}}, {second, nil}} {
			for _, id := range []string{"a", "b", "c"} {
				c.Leave(id)
				c.StartWith(id, clustertest.WithConfig(func(cfg *cluster.Config) {
					cfg.Key, cfg.OldKeys = keys.key, keys.old
				}))
				c.WaitAgreed(5 * time.Second)
			}
		}
		for _, id := range c.IDs() {
			if cfg := c.Agent(id).Config(); cfg.Key != nil || cfg.OldKeys != nil {
				t.Errorf("%s reveals its keys", id)
			}
		}
	})
}

func TestOldKeysAreChecked(t *testing.T) {
	for want, cfg := range map[string]cluster.Config{
		"OldKeys are set without a Key": {ID: "a", OldKeys: [][]byte{make([]byte, 16)}},
		"OldKeys has a key of 5 bytes":  {ID: "a", Key: make([]byte, 16), OldKeys: [][]byte{make([]byte, 5)}},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want … %s", err, want)
		}
	}
}

// A seed with answers that would be dropped is a fault; names are not looked up (S9.6).
func TestSeedsAreAllowed(t *testing.T) {
	for seed, want := range map[string]bool{
		"10.1.2.3:7946": true, "[fd00::7]:7946": true, "[::ffff:10.1.2.3]:7946": true, "seed.example.org:7946": true, "_roost._udp.example.org": true,
		"192.168.1.1:7946": false, "[fe80::1%eth0]:7946": false,
	} {
		c := cluster.Config{ID: "a", Join: []string{seed}, GossipAllow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%s: %v", seed, err)
		}
		c.GossipAllow = nil
		if err := c.Validate(); err != nil {
			t.Errorf("%s without a list: %v", seed, err)
		}
	}
}

// GossipAllow takes networks alone, and a Config shares none of them (S9.6).
func TestGossipAllowIsChecked(t *testing.T) {
	for want, networks := range map[string][]netip.Prefix{
		"":               {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		"its index is 0": {{}},
		"its index is 1": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:10.0.0.0/104")},
	} {
		err := cluster.Config{ID: "a", GossipAllow: networks}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", networks, err, want)
		}
	}
}
