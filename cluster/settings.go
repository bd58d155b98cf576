package cluster

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/roost-cluster/roost/lease"
)

// settings are the settings that must be equal on all nodes, as lines of name=value.
// They travel in memberlist's meta, and their hash in every message.
type settings string

func settingsOf(c Config) settings {
	return settings(fmt.Sprintf("wire=%d\npartitions=%d\nstrategy=%s\nheartbeat=%v\nttl=%v\nmax-skew=%v\n",
		lease.WireVersion, c.Partitions, c.Strategy.Name(), c.HeartbeatInterval, c.LeaseTTL, c.MaxSkew))
}

func (s settings) hash() uint32 { return uint32(xxhash.Sum64String(string(s))) }

// accept returns nil if a peer with the given meta runs with the same settings,
// else an error about the first setting that differs.
func (s settings) accept(peer string, meta []byte) error {
	if string(meta) == string(s) {
		return nil
	}
	theirs := make(map[string]string)
	for line := range strings.Lines(string(meta)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		theirs[name] = value
	}
	for line := range strings.Lines(string(s)) {
		name, ours, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if value, ok := theirs[name]; !ok {
			return &SettingsError{Peer: peer, Setting: name, Ours: ours, Theirs: "unknown"}
		} else if value != ours {
			return &SettingsError{Peer: peer, Setting: name, Ours: ours, Theirs: value}
		}
	}
	return &SettingsError{Peer: peer, Setting: "version", Ours: "this program", Theirs: "one with more settings"}
}
