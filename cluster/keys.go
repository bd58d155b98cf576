package cluster

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

const (
	printBytes = 4                               // length of a key's fingerprint
	plainPrint = "\x00\x00\x00\x00"              // fingerprint of PlainText
	maxKeys    = lease.MaxKeysBytes / printBytes // maximum in a record
)

// PlainText represents plain text in the list of gossip keys. With PlainText, you can give a running cluster
// its first key:
//
//   - Key k, OldKeys PlainText: the node encrypts with k, and also accepts plain text
//   - Key PlainText, OldKeys k: the node sends plain text, and also accepts messages encrypted with k
//
// While a node accepts plain text, anyone who can reach its port can join, impersonate any node and take over
// partitions, as without a key. While the node sends plain text, anyone on the network path can read it.
// Finish each step on all nodes before you start the next step. The fingerprint of PlainText is "plain".
const PlainText = gossip.PlainText

// KeyFingerprint returns a short name for a key: 8 hexadecimal digits of its hash, or "plain". The
// fingerprint reveals nothing about a random key.
func KeyFingerprint(key []byte) string { return fingerprints(printsOf([][]byte{key}))[0] }

// printsOf returns the fingerprints of the first maxKeys keys, in the format of a record.
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
		if string(p) == plainPrint {
			all = append(all, PlainText)
		} else {
			all = append(all, hex.EncodeToString(p))
		}
	}
	return all
}

// keys returns the gossip keys. The first key encrypts. Without encryption, keys returns nil.
func (c Config) keys() [][]byte {
	if len(c.Key) == 0 {
		return nil
	}
	return append([][]byte{c.Key}, c.OldKeys...)
}

// SetKeys replaces Config.Key and Config.OldKeys while the node runs. To change a cluster's key without
// losing messages, first give every node the new key as an old key. Then swap the two keys on every node.
// Finally, remove the key that is no longer used. To give a cluster its first key, follow the same steps with
// [PlainText] as the current key. [Member.KeyFingerprints] shows which step each member has reached. Watch
// streams that are already open remain open.
//
// The error wraps ErrPlain if a node that sends plain text would stop accepting plain text. The error wraps
// ErrSealed if a node that encrypts would return to plain text, or would accept plain text although it did
// not when it started. Concurrent calls take effect one after another.
func (a *Agent) SetKeys(key []byte, old ...[]byte) error {
	a.rekeying.Lock()
	defer a.rekeying.Unlock()
	return a.setKeys(append([][]byte{key}, old...))
}

func (a *Agent) setKeys(keys [][]byte) error {
	keys = cloned(keys)
	for _, k := range keys {
		if !aesKey(k) && string(k) != PlainText {
			return fmt.Errorf("cluster: a key has %d bytes; it must have 16, 24 or 32, or be PlainText", len(k))
		}
	}
	if err := a.gossip.SetKeys(keys[0], keys[1:]); err != nil {
		return fmt.Errorf("cluster: set keys: %w", err)
	}
	err := a.command(func(now time.Time, n *node.Node) { n.SetKeys(now, printsOf(a.gossip.Keys())) })
	if err != nil && !errors.Is(err, ErrClosed) { // a closed node has nothing to announce
		return fmt.Errorf("cluster: set keys: this node uses the new keys, but could not tell other members: %w", err)
	}
	return nil
}

// InstallKey adds a key that the node accepts but does not yet use to send. InstallKey is the first of three
// steps that change the key of a running cluster, or give the cluster its first key. Call InstallKey on all
// nodes, then UseKey on all nodes, then RemoveKey with the old key, or with "plain" (see [PlainText]). If the
// node already has the key, InstallKey does nothing. The error wraps ErrManyKeys if the node already has four
// keys, because a node cannot announce more keys to the others.
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

// UseKey makes the node send with a key that is already installed. The node still accepts the old key. The
// error wraps ErrUnknownKey if the node does not have the key, and ErrSealed for "plain". The error wraps
// ErrKeyLacking if, as far as this node knows, a live member does not announce the key yet. A fenced node
// does not check the other members, because it only knows their earlier keys.
func (a *Agent) UseKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		if at < 0 {
			return nil, ErrUnknownKey
		}
		// Members may have changed their keys since the fence. This node must follow such a change to join
		// the members again.
		ids := a.others(func(prints []string) bool { return !slices.Contains(prints, fingerprint) })
		if ids != "" && at > 0 && !a.Snapshot().Fenced {
			return nil, fmt.Errorf("%w: %s", ErrKeyLacking, ids)
		}
		used := keys[at]
		return slices.Insert(slices.Delete(keys, at, at+1), 0, used), nil
	})
}

// RemoveKey makes the node stop accepting a key. After RemoveKey("plain"), the node refuses plain text. If
// the node does not have the key, RemoveKey does nothing. The error wraps ErrKeyInUse if this node or, as far
// as it knows, a live member sends with the key. While the node is fenced, the error wraps ErrFenced, because
// the node does not know the current keys of the members.
func (a *Agent) RemoveKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		sends := func(prints []string) bool {
			return len(prints) > 0 && prints[0] == fingerprint || len(prints) == 0 && fingerprint == PlainText
		}
		switch ids := a.others(sends); {
		case at < 0:
			return keys, nil
		case at == 0:
			return nil, fmt.Errorf("%w by this node: use a different key first", ErrKeyInUse)
		case a.Snapshot().Fenced:
			return nil, fmt.Errorf("cluster: remove a key: %w", ErrFenced)
		case ids != "":
			return nil, fmt.Errorf("%w by %s", ErrKeyInUse, ids)
		}
		return slices.Delete(keys, at, at+1), nil
	})
}

// rekey carries out one step of a key change. It calls step with the keys and with the index of the key that has this
// fingerprint, or -1.
func (a *Agent) rekey(fingerprint string, step func(keys [][]byte, at int) ([][]byte, error)) error {
	a.rekeying.Lock()
	defer a.rekeying.Unlock()
	keys := a.Keys()
	keys, err := step(keys, slices.IndexFunc(keys, func(k []byte) bool { return KeyFingerprint(k) == fingerprint }))
	if err != nil {
		return err
	}
	return a.setKeys(keys)
}

// others returns the IDs of the first live members, except this node, for whose keys such returns true.
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

// Keys returns the gossip keys of this node: first the key that it sends with, then the other keys that it
// accepts. [PlainText] can be one of these keys, and is the only key if the node has no real key. The result
// is therefore never empty, and you can use it as Config.Key and Config.OldKeys when the node starts again.
// Don't log keys. Log KeyFingerprints instead.
func (a *Agent) Keys() [][]byte {
	keys := a.gossip.Keys()
	if len(keys) == 0 {
		return [][]byte{[]byte(PlainText)}
	}
	return cloned(keys)
}

// KeyFingerprints returns the fingerprint of each key of Keys.
func (a *Agent) KeyFingerprints() []string {
	var prints []string
	for _, k := range a.Keys() {
		prints = append(prints, KeyFingerprint(k))
	}
	return prints
}

// KeyFingerprints returns the fingerprints of the member's first four gossip keys, as announced by the
// member: first the key that it sends with, then the other keys that it accepts. One of the fingerprints is
// "plain" if the member has a key but also sends or accepts plain text. The result is empty if the member has
// no key.
func (m *Member) KeyFingerprints() []string { return fingerprints(m.keys) }

// Rejection counts the messages that this node rejected from one source without reading them further. Reason
// is "wrong_key" if no key of this node decrypts the message, or if only one side uses a key. Reason is
// "wrong_cluster" if the message names another cluster or none, and "not_allowed" if the source is outside
// Config.GossipAllow.
type Rejection struct {
	Reason  string
	Over    string    // "tcp" or "udp"; over UDP, the source can be forged
	From    string    // ip:port over UDP, ip over TCP
	Cluster string    // for wrong_cluster: the latest cluster name, at most 255 bytes, from an unauthenticated sender
	Count   uint64    // number of rejections since the source was added to this list
	Latest  time.Time // according to this node's clock
}

// Rejections returns the sources of packets and connections that this node rejected most recently, latest
// first. For each reason, the list has at most four UDP sources and four TCP sources. [Stats] counts all
// rejections.
func (a *Agent) Rejections() []Rejection {
	rejected := a.gossip.Rejections()
	all := make([]Rejection, len(rejected))
	for i, r := range rejected {
		all[i] = Rejection{Reason: r.Why.String(), Over: r.Over.String(), From: r.From, Cluster: r.Cluster, Count: r.Count, Latest: r.Latest}
	}
	return all
}
