// Package agreement compares the settings of the Resolvers that share a store, and refuses this node's claims
// while its settings differ from those of other nodes.
package agreement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// ErrSettings is affinity.ErrSettings.
var ErrSettings = errors.New("affinity: settings differ from other nodes")

// Agreement compares the settings of one node with those of the other nodes. Only one goroutine at a time may
// call Check, Report and Withdraw.
type Agreement struct {
	Store    pinstore.Store
	Log      *slog.Logger
	Settings pinstore.Settings
	TTL      time.Duration // how long the store keeps this node's settings

	// Explain returns a readable text for a difference, or "".
	Explain func(pinstore.Difference) string

	// Keys returns fingerprints of this node's gossip keys. The first fingerprint is for the key that this
	// node sends with, and the others are for further keys that it accepts. Without a key, Keys returns no
	// fingerprints. Keys may be nil.
	Keys func() []string

	strange time.Time // since when other nodes have used a key that this node does not accept; zero if no node does

	at      lease.Incarnation // incarnation and fences at the last comparison
	fences  uint64
	last    time.Time
	silent  bool      // this node was not live at some time since the last comparison
	differ  string    // differences at the last comparison
	logged  string    // differences that were last logged
	failing time.Time // since when comparing settings has failed; zero: the latest comparison succeeded
	unheard bool      // a failure of the store has been logged
	refused atomic.Pointer[error]

	rejected atomic.Pointer[[]lease.Incarnation]
}

// Refused returns an ErrSettings that names each difference, or nil. Refused is safe for concurrent use.
func (a *Agreement) Refused() error {
	if err := a.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Rejected returns the nodes that the store refuses because of their settings, as of the latest answer.
// Rejected is safe for concurrent use.
func (a *Agreement) Rejected() []lease.Incarnation {
	if s := a.rejected.Load(); s != nil {
		return *s
	}
	return nil
}

// Check records this node's settings in the store, and compares them with the settings of other nodes. If the
// store fails, Check returns the store's error and keeps the previous result, because a failing store must
// not interrupt a running node.
//
// self is the zero Incarnation while this node is not live. fences is how often this node's lease has
// expired. If settings differ, the node that came first wins. After a fence, or if this node was not live and
// more than a TTL has passed since the last comparison, this node loses its precedence, because other nodes
// may have started with other settings. If only the store was unreachable, this node keeps its precedence.
func (a *Agreement) Check(ctx context.Context, self lease.Incarnation, fences uint64) error {
	if self.Number == 0 {
		a.silent = true
		return nil
	}
	if self != a.at || fences != a.fences || (a.silent && time.Since(a.last) > a.TTL) {
		a.Settings.Since = 0
	}
	a.silent = false
	got, err := a.agree(ctx, self)
	if err != nil {
		return err
	}
	a.at, a.fences, a.last, a.Settings.Since = self, fences, time.Now(), got.Since
	a.rejected.Store(&got.Refused)
	a.differ = ""
	if len(got.Differ) == 0 {
		a.refused.Store(nil)
		return nil
	}
	for _, d := range got.Differ { // omit the node, because each answer may name a different one
		a.differ += d.Setting + " " + d.Theirs + "\n"
	}
	err = a.refusal(got.Differ)
	a.refused.Store(&err)
	return nil
}

const (
	settingKey     = "key"     // the fingerprint of the key with which a node sends gossip
	settingCluster = "cluster" // the name of the cluster that uses this key prefix; the store adds it
)

// agree records the settings and the gossip key. Different keys show that two clusters have the same name by mistake.
// During a key rotation, the nodes of one cluster also have different keys, but each node accepts the keys of the other
// nodes, or accepted them until a moment ago. So agree ignores a different key until this node has not accepted it for
// a TTL, and then concludes that the other nodes belong to another cluster. If anything else differs, or if agree still
// ignores the key, it calls the store again without the key. If the store refuses this node's settings, the second call
// also adds this node to the list that other nodes get from Rejected. If the second call fails, agree returns the first
// answer, provided that a setting other than the key differs.
func (a *Agreement) agree(ctx context.Context, self lease.Incarnation) (pinstore.Agreed, error) {
	keys := a.keys()
	stated := a.Settings
	stated.Trial = true
	stated.Values = append(slices.Clip(stated.Values), pinstore.Setting{Name: settingKey, Value: keys[0]})
	got, err := a.Store.Agree(ctx, self, a.TTL, stated)
	if err != nil {
		return got, err
	}
	i := slices.IndexFunc(got.Differ, func(d pinstore.Difference) bool { return d.Setting == settingKey })
	switch {
	case i < 0 || slices.Contains(keys, got.Differ[i].Theirs):
		a.strange = time.Time{}
	case a.strange.IsZero():
		a.strange = time.Now()
	}
	other := !a.strange.IsZero() && time.Since(a.strange) > a.TTL
	if len(got.Differ) == 0 || other || otherCluster(got.Differ) != nil {
		return got, nil
	}
	again, err := a.Store.Agree(ctx, self, a.TTL, a.Settings)
	got.Differ = slices.DeleteFunc(got.Differ, func(d pinstore.Difference) bool { return d.Setting == settingKey })
	if err != nil && len(got.Differ) > 0 {
		return got, nil
	}
	return again, err
}

// keys returns the result of Keys, or "none" if there is no key.
func (a *Agreement) keys() []string {
	if a.Keys != nil {
		if keys := a.Keys(); len(keys) > 0 {
			return keys
		}
	}
	return []string{"none"}
}

// otherCluster returns the difference which shows that another cluster uses the keys of the store, or nil.
func otherCluster(differ []pinstore.Difference) *pinstore.Difference {
	for i, d := range differ {
		if d.Setting == settingCluster {
			return &differ[i]
		}
	}
	return nil
}

// Report logs the result of Check if it has changed. err is the error of Check. Report only logs an error
// that lasts for at least a TTL, because a busy store occasionally answers too late.
func (a *Agreement) Report(err error) {
	switch {
	case err == nil:
		a.failing = time.Time{}
	case a.failing.IsZero():
		a.failing = time.Now()
	}
	unheard := err != nil && time.Since(a.failing) >= a.TTL
	switch {
	case unheard && !a.unheard:
		a.Log.Warn("settings not compared with those of other nodes", "err", err)
	case a.differ != "" && a.differ != a.logged:
		a.Log.Error("settings differ between nodes; placing no rooms", "err", a.Refused())
	case a.differ == "" && a.logged != "":
		a.Log.Info("settings agree between nodes again")
	}
	a.unheard, a.logged = unheard, a.differ
}

// Withdraw removes this node's settings from the store when the node stops. Withdraw ignores errors.
func (a *Agreement) Withdraw(ctx context.Context) {
	if a.at.Number != 0 && a.Refused() == nil {
		_, _ = a.Store.Agree(ctx, a.at, 0, a.Settings) // if this fails, the record expires
	}
}

func (a *Agreement) refusal(differ []pinstore.Difference) error {
	if d := otherCluster(differ); d != nil {
		return fmt.Errorf("%w: cluster %.80s uses the keys of this store (according to %s), but this node belongs to cluster %.80s: give each cluster its own key prefix, or correct this node's cluster name",
			ErrSettings, d.Theirs, d.By.Node, d.Ours)
	}
	texts := make([]string, len(differ))
	for i, d := range differ {
		what := a.Explain(d)
		if d.Setting == settingKey {
			what = fmt.Sprintf("gossip key (by its fingerprint) is %.80s here and %.80s", d.Ours, d.Theirs)
		}
		if what == "" {
			what = fmt.Sprintf("%s is %.80s here and %.80s", d.Setting, d.Ours, d.Theirs)
		}
		texts[i] = fmt.Sprintf("%s on %s", what, d.By.Node)
	}
	return fmt.Errorf("%w of cluster %q on this store: %s; use the same settings, or stop all nodes that have the other settings and wait for up to %v; if this is another cluster, give it another name",
		ErrSettings, a.Settings.Cluster, strings.Join(texts, "; "), a.TTL)
}
