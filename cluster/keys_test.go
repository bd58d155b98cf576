package cluster_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// Three rolling restarts change the key. Old and new processes can communicate at all times.
func TestKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changeByRestarts(t, bytes.Repeat([]byte{1}, 32))
	})
}

// A cluster without a key gets its first key in the same way.
func TestFirstKeyByRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changeByRestarts(t, []byte(cluster.PlainText))
	})
}

// Without a key, Keys and KeyFingerprints return plain text as the node's only key. Another node can start with the
// keys that Keys returned.
func TestKeysWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a")
		check := func(id string) {
			t.Helper()
			keys, prints := c.Agent(id).Keys(), c.Agent(id).KeyFingerprints()
			if len(keys) != 1 || string(keys[0]) != cluster.PlainText || !slices.Equal(prints, []string{cluster.PlainText}) {
				t.Errorf("%s: keys %q, fingerprints %q", id, keys, prints)
			}
		}
		check("a")
		keys := c.Agent("a").Keys()
		c.StartWith("b", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Key, cfg.OldKeys = keys[0], keys[1:] }))
		check("b")
		c.WaitAgreed(5 * time.Second)
		if err := c.Agent("a").SetKeys(keys[0], keys[1:]...); err != nil {
			t.Error(err)
		}
		check("a")
	})
}

func changeByRestarts(t *testing.T, first []byte) {
	second := bytes.Repeat([]byte{2}, 16)
	c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key = first }})
	c.Start("a", "b", "c")
	c.WaitAgreed(3 * time.Second)
	for _, keys := range []struct {
		key []byte
		old [][]byte
	}{{first, [][]byte{second}}, {second, [][]byte{first}}, {second, nil}} {
		for _, id := range []string{"a", "b", "c"} {
			c.Leave(id)
			c.StartWith(id, clustertest.WithConfig(func(cfg *cluster.Config) {
				cfg.Key, cfg.OldKeys = keys.key, keys.old
			}))
			c.WaitAgreed(5 * time.Second)
		}
	}
	for _, id := range c.IDs() {
		if cfg := c.Agent(id).Config(); cfg.Key != nil || cfg.OldKeys != nil {
			t.Errorf("%s reveals its keys", id)
		}
	}
}

// The caller may overwrite its key after Start.
func TestKeyIsCopied(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	start := func(id string, seeds ...string) *cluster.Agent {
		cfg := local(id, seeds...)
		cfg.Key = bytes.Clone(key)
		a := startAgent(t, cfg)
		clear(cfg.Key)
		return a
	}
	a := start("a")
	b := start("b", a.Addr())
	c := start("c", a.Addr())
	waitReady(t, a, b, c)
}
