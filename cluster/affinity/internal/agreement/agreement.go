// Package agreement makes the resolvers that share a store agree on their settings, and refuses this node's
// claims while others have different settings.
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

// ErrSettings is exported by package affinity.
var ErrSettings = errors.New("affinity: settings differ from those of other nodes")

// Agreement is the view of one node. Only one goroutine at a time may call Check and Withdraw.
type Agreement struct {
	Store    pinstore.Store
	Log      *slog.Logger
	Settings pinstore.Settings
	TTL      time.Duration // how long the store keeps what this node states

	// Explain returns a difference for people, or "".
	Explain func(pinstore.Difference) string

	// Keys returns fingerprints of this node's gossip keys: first of the key that it sends with, then of
	// other keys that it accepts. Without a key it returns none. Keys may be nil.
	Keys func() []string

	strange time.Time // since when others have had a key that this node does not accept; zero: they have none

	at      lease.Incarnation // incarnation of the last comparison; fences at that time
	fences  uint64
	last    time.Time
	silent  bool      // not live since the last comparison
	differ  string    // what differed at the last comparison
	logged  string    // the latest difference in the log
	failing time.Time // since when the store fails to compare settings; zero: it does not fail
	unheard bool      // the log says that the store fails
	refused atomic.Pointer[error]

	rejected atomic.Pointer[[]lease.Incarnation]
}

// Refused returns an ErrSettings that names each difference, or nil. Any goroutine may
// call it.
func (a *Agreement) Refused() error {
	if err := a.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Rejected returns the nodes that the store refuses because of their settings, as of the latest answer. Any
// goroutine may call it.
func (a *Agreement) Rejected() []lease.Incarnation {
	if s := a.rejected.Load(); s != nil {
		return *s
	}
	return nil
}

// Check records this node's settings in the store, and compares them with those of others. If the store
// fails, Check returns its error and changes nothing, because a failing store must not stop what runs.
//
// self is the zero Incarnation while this node is not live. fences counts how often its lease has ended.
// After a fence, or a TTL without Check, other nodes may have begun with other settings, and this node no
// longer counts as earlier than they. If only the store was away, it still does.
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
	for _, d := range got.Differ { // without the node, which is different each time
		a.differ += d.Setting + " " + d.Theirs + "\n"
	}
	err = a.refusal(got.Differ)
	a.refused.Store(&err)
	return nil
}

const (
	settingKey     = "key"     // the fingerprint of the key that a node sends gossip with
	settingCluster = "cluster" // the name of the cluster that has the keys of the store; stated by the store
)

// agree records the settings and the key. Two clusters that have the same name by mistake have different
// keys. So has a cluster that changes its key, but there a node accepts the others' key, or did until a
// moment ago. So a different key only counts after this node has not accepted it for a TTL. The second call
// lists a node that is refused because of the settings themselves for the others. If it fails, the answer of
// the first call counts.
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

// keys returns what Keys does, or "none".
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

// Report logs the result of Check if it is new. err is an error of the store while other calls succeed. It
// does not log an error that ends within a TTL, because a busy store is late now and then.
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

// Withdraw says that this node has ended.
func (a *Agreement) Withdraw(ctx context.Context) {
	if a.at.Number != 0 && a.Refused() == nil {
		_, _ = a.Store.Agree(ctx, a.at, 0, a.Settings) // if this fails, the record expires
	}
}

func (a *Agreement) refusal(differ []pinstore.Difference) error {
	if d := otherCluster(differ); d != nil {
		return fmt.Errorf("%w: cluster %.80s has the keys of this store (so says %s), and this node is of cluster %.80s: give each cluster a prefix of keys of its own, or this node the right name",
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
	return fmt.Errorf("%w of cluster %q over this store: %s; set them equal, or stop all nodes that have the others and wait for up to %v; if this is another cluster, give it another name",
		ErrSettings, a.Settings.Cluster, strings.Join(texts, "; "), a.TTL)
}
