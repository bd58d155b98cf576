package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/roost-cluster/roost/lease"
)

// settings contains the settings that must be equal on all nodes, as lines of name=value, and the range of
// wire versions that a node can read. The ranges of two nodes must overlap. memberlist's meta carries the
// settings. Every message contains the hash of all settings except the range.
type settings struct {
	wire  [2]int // oldest and newest wire version
	equal string
}

func settingsOf(c Config) settings {
	equal := fmt.Sprintf("partitions=%d\nstrategy=%s\nheartbeat=%v\nttl=%v\nmax-skew=%v\nsplit=%s\n",
		c.Partitions, c.Strategy.Name(), c.HeartbeatInterval, c.LeaseTTL, c.MaxSkew, c.Split)
	if c.Split == SplitMajority {
		equal += fmt.Sprintf("split-forget=%v\n", c.SplitForget)
	}
	return settings{wire: [2]int{lease.MinWireVersion, lease.WireVersion}, equal: equal}
}

func (s settings) hash() uint32 { return uint32(xxhash.Sum64String(s.equal)) }

// meta encodes the settings for memberlist's meta, and adds the identity of the node's cluster, which can
// change.
func (s settings) meta(id lease.ClusterID) []byte {
	b := []byte(s.wireLine() + s.equal)
	if len(id) == 0 {
		return b
	}
	b = append(b, clusterLine...)
	for _, founder := range id {
		b = fmt.Appendf(b, "%012x,", uint64(founder))
	}
	return append(b, '\n')
}

// clusterLine is the prefix of the line with the cluster's identity, which is not a setting.
const clusterLine = "cluster="

// ofCluster reports whether a node may belong to the cluster with this identity. A node may belong to the
// cluster if both share a founder, or if one side has no identity.
func ofCluster(id lease.ClusterID, meta []byte) bool {
	if len(id) == 0 {
		return true
	}
	for line := range strings.Lines(string(meta)) {
		if founders, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), clusterLine); ok {
			return slices.ContainsFunc(id, func(founder lease.Handle) bool {
				return strings.Contains(founders, fmt.Sprintf("%012x", uint64(founder)))
			})
		}
	}
	return true
}

func (s settings) wireLine() string { return fmt.Sprintf("wire=%d-%d\n", s.wire[0], s.wire[1]) }

// accept returns nil if a peer with the given meta has the same settings. Otherwise, the error names the
// first setting that differs.
func (s settings) accept(peer string, meta []byte) error {
	theirs := make(map[string]string)
	for line := range strings.Lines(string(meta)) {
		if strings.HasPrefix(line, clusterLine) {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		theirs[name] = value
	}
	for line := range strings.Lines(s.wireLine() + s.equal) {
		name, ours, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		value, ok := theirs[name]
		delete(theirs, name)
		switch {
		case !ok:
			return &SettingsError{Peer: peer, Setting: name, Ours: ours, Theirs: "unknown"}
		case value != ours && (name != "wire" || !s.reads(value)):
			return &SettingsError{Peer: peer, Setting: name, Ours: ours, Theirs: value}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		return &SettingsError{Peer: peer, Setting: name, Ours: "unknown to this release", Theirs: theirs[name]}
	}
	return nil
}

// reads reports whether another node's range of wire versions overlaps with the range of this node.
func (s settings) reads(theirs string) bool {
	var oldest, newest int
	n, err := fmt.Sscanf(theirs, "%d-%d", &oldest, &newest)
	return n == 2 && err == nil && oldest <= s.wire[1] && newest >= s.wire[0]
}
