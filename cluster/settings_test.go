package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/placement"
)

type renamed struct{ placement.Strategy }

func (renamed) Name() string { return "other" }

// The two sides compare each cluster-wide setting, and the error names the setting that differs.
func TestSettings(t *testing.T) {
	base := Config{ID: "a"}.WithDefaults()
	for name, change := range map[string]func(*Config){
		"partitions": func(c *Config) { c.Partitions = 64 },
		"strategy":   func(c *Config) { c.Strategy = renamed{c.Strategy} },
		"heartbeat":  func(c *Config) { c.HeartbeatInterval = time.Second },
		"ttl":        func(c *Config) { c.LeaseTTL = 7 * time.Second },
		"max-skew":   func(c *Config) { c.MaxSkew = time.Second },
		"split":      func(c *Config) { c.Split = SplitMajority },
	} {
		other := base
		change(&other)
		ours, theirs := settingsOf(base), settingsOf(other)
		if ours.hash() == theirs.hash() {
			t.Errorf("%s: equal hashes", name)
		}
		for _, pair := range [][2]settings{{ours, theirs}, {theirs, ours}} {
			var err *SettingsError
			if !errors.As(pair[0].accept("b#1", pair[1].meta(nil)), &err) || err.Setting != name || err.Ours == err.Theirs || err.Peer != "b#1" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	forgetful, lasting := base, base
	forgetful.Split, lasting.Split = SplitMajority, SplitMajority
	lasting.SplitForget = time.Hour
	var err *SettingsError
	if !errors.As(settingsOf(lasting).accept("b#1", settingsOf(forgetful).meta(nil)), &err) || err.Setting != "split-forget" {
		t.Errorf("split-forget: %v", err)
	}
	own := settingsOf(base)
	if err := own.accept("b#1", own.meta(nil)); err != nil {
		t.Errorf("equal settings: %v", err)
	}
	for _, meta := range []string{"", "garbage", string(own.meta(nil)) + "more=1\n"} {
		if own.accept("b#1", []byte(meta)) == nil {
			t.Errorf("%q is accepted", meta)
		}
	}
}

// Adjacent releases can run in one cluster if the ranges of their wire versions overlap.
func TestSettingsOfOtherReleases(t *testing.T) {
	own := settingsOf(Config{ID: "a"}.WithDefaults())
	for wire, accepted := range map[[2]int]bool{
		{1, 1}: true, {1, 2}: true, {0, 1}: true, {2, 2}: false, {0, 0}: false, {2, 1}: false,
	} {
		other := own
		other.wire = wire
		var refused *SettingsError
		err := own.accept("b#1", other.meta(nil))
		if (err == nil) != accepted || (err != nil && (!errors.As(err, &refused) || refused.Setting != "wire")) {
			t.Errorf("wire versions %d to %d: %v", wire[0], wire[1], err)
		}
		if own.hash() != other.hash() {
			t.Errorf("the range of wire versions changes the hash")
		}
	}
}

// FuzzAccept: a node is accepted only if all its settings are equal. Otherwise, the error names a setting.
func FuzzAccept(f *testing.F) {
	own := settingsOf(Config{ID: "a"}.WithDefaults())
	for _, meta := range []string{
		"", "=", "wire=1-1\n", "wire=9-1", string(own.meta(nil)), string(own.meta(nil)) + "more=1\n",
		own.equal + "wire=0-2\n", strings.Repeat("a=\n", 100),
	} {
		f.Add(meta)
	}
	f.Fuzz(func(t *testing.T, meta string) {
		err := own.accept("b#1", []byte(meta))
		if err != nil {
			if refused, ok := errors.AsType[*SettingsError](err); !ok || refused.Ours == refused.Theirs || refused.Peer != "b#1" {
				t.Errorf("%q: %v", meta, err)
			}
			return
		}
		lines := strings.Split(meta, "\n")
		for line := range strings.Lines(own.equal) {
			if !slices.Contains(lines, strings.TrimSuffix(line, "\n")) {
				t.Errorf("%q is accepted without %q", meta, line)
			}
		}
	})
}
