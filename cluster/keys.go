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
	printBytes = 4                               // of the fingerprint of a key
	plainPrint = "\x00\x00\x00\x00"              // the fingerprint of PlainText
	maxKeys    = lease.MaxKeysBytes / printBytes // that a record states
)

// PlainText stands for plain text among the gossip keys, so that a cluster without a key can get one while it runs:
//
//   - Key k, OldKeys PlainText: the node sends with k, and accepts plain text, too
//   - Key PlainText, OldKeys k: the node sends plain text, and accepts what k has sealed, too
//
// While a node accepts plain text, whoever reaches its port can join, speak for any node and take over
// partitions, as without a key; while it sends plain text, whoever is on the way can read it. Each step has
// to reach all nodes before the next one. Its fingerprint is "plain".
const PlainText = gossip.PlainText

// KeyFingerprint tells keys apart: 8 hexadecimal digits of a hash, which say nothing of a random key, or "plain".
func KeyFingerprint(key []byte) string { return fingerprints(printsOf([][]byte{key}))[0] }

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
		if string(p) == plainPrint {
			all = append(all, PlainText)
		} else {
			all = append(all, hex.EncodeToString(p))
		}
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

// SetKeys replaces Config.Key and Config.OldKeys while the node runs. A cluster that changes its key gives
// every node the new one as an old one, then swaps both, then removes the former one; nothing is lost in
// between. A cluster that gets its first key does the same, with [PlainText] as the former one.
// [Member.KeyFingerprints] says how far the members are. Watch streams that are open stay open. The error
// wraps ErrPlain if a node that sends plain text would stop accepting it. It wraps ErrSealed if a node that
// encrypts would go back to plain text, or would accept it although it did not at its start. Concurrent calls
// take effect one after the other.
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
	if err != nil && !errors.Is(err, ErrClosed) { // a node that has ended announces nothing
		return fmt.Errorf("cluster: set keys: they are in use, and other members do not know it: %w", err)
	}
	return nil
}

// InstallKey adds a key that the node accepts, and does not send with yet. It is the first of three steps
// that change the key of a cluster while it runs, or give it the first one: InstallKey on all nodes, then
// UseKey on all, then RemoveKey of the former key, or of "plain": see [PlainText]. A key that the node has is
// no error. The error wraps ErrManyKeys from four keys on: the others would not see more.
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

// UseKey makes the node send with a key that it accepts, and accept the former one on. The error wraps
// ErrUnknownKey, ErrSealed for "plain", or ErrKeyLacking if a live member, as this node sees it, does not
// state the key. A node that is fenced knows only the members from before, which may have changed their keys,
// so it does not ask them.
func (a *Agent) UseKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		if at < 0 {
			return nil, ErrUnknownKey
		}
		// The members of before a fence may have changed their keys since, and this node has to follow to
		// join them again.
		ids := a.others(func(prints []string) bool { return !slices.Contains(prints, fingerprint) })
		if ids != "" && at > 0 && !a.Snapshot().Fenced {
			return nil, fmt.Errorf("%w: %s", ErrKeyLacking, ids)
		}
		used := keys[at]
		return slices.Insert(slices.Delete(keys, at, at+1), 0, used), nil
	})
}

// RemoveKey makes the node stop accepting a key. A key that the node does not have is no error. "plain" makes
// the node refuse plain text. The error wraps ErrKeyInUse if this node or a live member, as this node sees
// it, sends with the key, or ErrFenced while this node cannot see that.
func (a *Agent) RemoveKey(fingerprint string) error {
	return a.rekey(fingerprint, func(keys [][]byte, at int) ([][]byte, error) {
		sends := func(prints []string) bool {
			return len(prints) > 0 && prints[0] == fingerprint || len(prints) == 0 && fingerprint == PlainText
		}
		switch ids := a.others(sends); {
		case at < 0:
			return keys, nil
		case at == 0:
			return nil, fmt.Errorf("%w by this node: use another key first", ErrKeyInUse)
		case a.Snapshot().Fenced:
			return nil, fmt.Errorf("cluster: remove a key: %w", ErrFenced)
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

// Keys returns the gossip keys of this node: first the one that it sends with, then the other accepted ones.
// [PlainText] may be among them, and is the only one without a key. So there is always a first one, and the
// next start can have them as Config.Key and Config.OldKeys. Do not log them: KeyFingerprints is for that.
func (a *Agent) Keys() [][]byte {
	keys := a.gossip.Keys()
	if len(keys) == 0 {
		return [][]byte{[]byte(PlainText)}
	}
	return cloned(keys)
}

// KeyFingerprints returns a fingerprint of each of Keys.
func (a *Agent) KeyFingerprints() []string {
	var prints []string
	for _, k := range a.Keys() {
		prints = append(prints, KeyFingerprint(k))
	}
	return prints
}

// KeyFingerprints returns fingerprints of the first four gossip keys of the member, as it states them: first
// of the key that it sends with, then of the other accepted keys. One is "plain" if the member sends or
// accepts plain text besides a key. A member without a key states none.
func (m *Member) KeyFingerprints() []string { return fingerprints(m.keys) }

// Rejection is what this node rejected from one source, before it decided anything. Reason is "wrong_key" (no
// key of this node opens it, or only one side uses a key), "wrong_cluster" (it names another cluster, or
// none) or "not_allowed" (the source is outside Config.GossipAllow).
type Rejection struct {
	Reason  string
	Over    string    // "tcp", or "udp": then anybody may have forged the source
	From    string    // ip:port over UDP; ip over TCP
	Cluster string    // the latest name with wrong_cluster, at most 255 bytes; the sender is not authenticated
	Count   uint64    // since the source is one of the latest
	Latest  time.Time // by this node's clock
}

// Rejections returns the latest sources of packets and connections that this node rejected, the latest one
// first: at most four for each reason over UDP, and as many over TCP. [Stats] counts all.
func (a *Agent) Rejections() []Rejection {
	rejected := a.gossip.Rejections()
	all := make([]Rejection, len(rejected))
	for i, r := range rejected {
		all[i] = Rejection{Reason: r.Why.String(), Over: r.Over.String(), From: r.From, Cluster: r.Cluster, Count: r.Count, Latest: r.Latest}
	}
	return all
}
