package cluster

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// printBytes is the size of the fingerprint of a key.
const printBytes = 4

// KeyFingerprint tells keys apart: 8 hexadecimal digits of a hash, which say nothing of a random key.
func KeyFingerprint(key []byte) string { return hex.EncodeToString([]byte(printsOf([][]byte{key}))) }

// printsOf returns the fingerprints of the first keys, as a record holds them.
func printsOf(keys [][]byte) string {
	var prints strings.Builder
	for _, k := range keys[:min(len(keys), lease.MaxKeysBytes/printBytes)] {
		f := gossip.Fingerprint(k)
		prints.Write(f[:])
	}
	return prints.String()
}

func fingerprints(prints string) (all []string) {
	for p := range slices.Chunk([]byte(prints), printBytes) {
		all = append(all, hex.EncodeToString(p))
	}
	return all
}

// keys returns the keys of gossip, that which encrypts first; without encryption none.
func (c Config) keys() [][]byte {
	if len(c.Key) == 0 {
		return nil
	}
	return append([][]byte{c.Key}, c.OldKeys...)
}

// SetKeys replaces Config.Key and Config.OldKeys while the node runs. A cluster that changes its key
// gives every node the new one as an old one, then swaps both, then removes the former one; nothing is lost in between.
// [Member.KeyFingerprints] says how far the members are. Watch streams that are open stay open. The error wraps ErrPlain
// if the node has no key: its cluster has to be stopped to get one. Concurrent calls take effect one after the other.
func (a *Agent) SetKeys(key []byte, old ...[]byte) error {
	keys := [][]byte{slices.Clone(key)}
	for _, k := range old {
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if !aesKey(k) {
			return fmt.Errorf("cluster: a key has %d bytes; it must have 16, 24 or 32", len(k))
		}
	}
	if err := a.gossip.SetKeys(keys[0], keys[1:]); err != nil {
		return fmt.Errorf("cluster: set keys: %w", err)
	}
	// A node that has ended announces nothing. Of concurrent calls, the last one announces what holds.
	_ = a.command(func(now time.Time, n *node.Node) { n.SetKeys(now, printsOf(a.gossip.Keys())) })
	return nil
}

// KeyFingerprints returns a fingerprint of each gossip key of this node: first of the key that it sends
// with, then of the other accepted keys. Without a key there are none.
func (a *Agent) KeyFingerprints() []string {
	var prints []string
	for _, k := range a.gossip.Keys() {
		prints = append(prints, KeyFingerprint(k))
	}
	return prints
}

// KeyFingerprints returns fingerprints of the first four gossip keys of the member, as it states them: first of
// the key that it sends with, then of the other accepted keys. A member without a key states none, and so
// does one of an earlier release.
func (m *Member) KeyFingerprints() []string { return fingerprints(m.keys) }
