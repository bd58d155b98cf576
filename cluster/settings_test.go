package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

type renamed struct{ placement.Strategy }

func (renamed) Name() string { return "other" }

// Each cluster-wide setting is compared, in both directions, and named.
func TestSettings(t *testing.T) { // S3.10
	base := Config{ID: "a"}.WithDefaults()
	for name, change := range map[string]func(*Config){
		"partitions": func(c *Config) { c.Partitions = 64 },
		"strategy":   func(c *Config) { c.Strategy = renamed{c.Strategy} },
		"heartbeat":  func(c *Config) { c.HeartbeatInterval = time.Second },
		"ttl":        func(c *Config) { c.LeaseTTL = 7 * time.Second },
		"max-skew":   func(c *Config) { c.MaxSkew = time.Second },
	} {
		other := base
		change(&other)
		ours, theirs := settingsOf(base), settingsOf(other)
		if ours.hash() == theirs.hash() {
			t.Errorf("%s: equal hashes", name)
		}
		for _, pair := range [][2]settings{{ours, theirs}, {theirs, ours}} {
			var err *SettingsError
			if !errors.As(pair[0].accept("b#1", []byte(pair[1])), &err) || err.Setting != name || err.Ours == err.Theirs || err.Peer != "b#1" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	own := settingsOf(base)
	older := strings.Replace(string(own), fmt.Sprintf("wire=%d\n", lease.WireVersion), fmt.Sprintf("wire=%d\n", lease.WireVersion-1), 1)
	var wire *SettingsError
	if !errors.As(own.accept("b#1", []byte(older)), &wire) || wire.Setting != "wire" {
		t.Errorf("a node of an older wire version: %v", wire)
	}
	if err := own.accept("b#1", []byte(own)); err != nil {
		t.Errorf("equal settings: %v", err)
	}
	for _, meta := range []string{"", "garbage", string(own) + "more=1\n"} {
		if own.accept("b#1", []byte(meta)) == nil {
			t.Errorf("%q is accepted", meta)
		}
	}
}
