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

const (
	printBytes = 4                               // of the fingerprint of a key
	maxKeys    = lease.MaxKeysBytes / printBytes // that a record states
)

// KeyFingerprint tells keys apart: 8 hexadecimal digits of a hash, which say nothing of a random key.
func KeyFingerprint(key []byte) string { return hex.EncodeToString([]byte(printsOf([][]byte{key}))) }

// printsOf returns the fingerprints of the first keys, as a record holds them.
func printsOf(keys [][]byte) string {
	var prints strings.Builder
	for _, k := range keys[:min(len(keys), maxKeys)] {
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
	a.rekeying.Lock()
	defer a.rekeying.Unlock()
	return a.setKeys(append([][]byte{key}, old...))
}

func (a *Agent) setKeys(keys [][]byte) error {
	keys = cloned(keys)
	for _, k := range keys {
		if !aesKey(k) {
			return fmt.Errorf("cluster: a key has %d bytes; it must have 16, 24 or 32", len(k))
		}
	}
	if err := a.gossip.SetKeys(keys[0], keys[1:]); err != nil {
		return fmt.Errorf("cluster: set keys: %w", err)
	}
	// A node that has ended announces nothing.
	_ = a.command(func(now time.Time, n *node.Node) { n.SetKeys(now, printsOf(a.gossip.Keys())) })
	return nil
}

// InstallKey adds a key that the node accepts, and does not send with yet. It is the first of three steps that change the
// key of a cluster while it runs: InstallKey on all nodes, then UseKey on all, then RemoveKey of the former key. A key that the
// node has is no error. The error wraps ErrPlain, or ErrManyKeys from four keys on: the others would not see more.
func (a *Agent) InstallKey(key []byte) error {
	return a.rekey(KeyFingerprint(key), func(keys [][]byte, at int) ([][]byte, error) {
		switch {
		case at >= 0:
			return keys, nil
		case len(keys) >= maxKeys:
			return nil, ErrManyKeys
		}
		return append(keys, key), nil
	})
}

// UseKey makes the node send with a key that it accepts, and accept the former one on. The error wraps ErrPlain, ErrUnknownKey, or
// ErrKeyLacking if a live member, as this node sees it, does not state the key.
func (a *Agent) UseKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		if at < 0 {
			return nil, ErrUnknownKey
		}
		if ids := a.others(func(prints []string) bool { return !slices.Contains(prints, fingerprint) }); ids != "" && at > 0 {
			return nil, fmt.Errorf("%w: %s", ErrKeyLacking, ids)
		}
		used := keys[at]
		return slices.Insert(slices.Delete(keys, at, at+1), 0, used), nil
	})
}

// RemoveKey makes the node accept a key no more. A key that the node does not have is no error. The error wraps ErrPlain, or
// ErrKeyInUse if this node or a live member, as this node sees it, sends with the key.
func (a *Agent) RemoveKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		switch ids := a.others(func(prints []string) bool { return len(prints) > 0 && prints[0] == fingerprint }); {
		case at < 0:
			return keys, nil
		case at == 0:
			return nil, fmt.Errorf("%w by this node: use another key first", ErrKeyInUse)
		case ids != "":
			return nil, fmt.Errorf("%w by %s", ErrKeyInUse, ids)
		}
		return slices.Delete(keys, at, at+1), nil
	})
}

// rekey makes one step of a change of the key: by the keys, and the place of the key with this fingerprint, -1 without it.
func (a *Agent) rekey(fingerprint string, step func(keys [][]byte, at int) ([][]byte, error)) error {
	a.rekeying.Lock()
	defer a.rekeying.Unlock()
	keys := a.Keys()
	if len(keys) == 0 {
		return fmt.Errorf("cluster: change keys: %w", ErrPlain)
	}
	keys, err := step(keys, slices.IndexFunc(keys, func(k []byte) bool { return KeyFingerprint(k) == fingerprint }))
	if err != nil {
		return err
	}
	return a.setKeys(keys)
}

// others names the first live members besides this node whose keys are such.
func (a *Agent) others(such func(prints []string) bool) string {
	const most = 5
	var names []string
	for _, m := range a.Snapshot().Members {
		if m.ID != a.self && such(m.KeyFingerprints()) {
			names = append(names, string(m.ID))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func cloned(keys [][]byte) [][]byte {
	all := make([][]byte, len(keys))
	for i, k := range keys {
		all[i] = slices.Clone(k)
	}
	return all
}

// Keys returns the gossip keys of this node: first the one that it sends with, then the other accepted ones. Without a key
// there are none. It is for a program that keeps them for its next start. Do not log them: KeyFingerprints is for that.
func (a *Agent) Keys() [][]byte { return cloned(a.gossip.Keys()) }

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
