package cluster_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A key is changed by three rolling restarts, and at no time is there a node that
// another does not understand.
func TestKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changeByRestarts(t, bytes.Repeat([]byte{1}, 32))
	})
}

// A cluster without a key gets one in the same way.
func TestFirstKeyByRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changeByRestarts(t, []byte(cluster.PlainText))
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
