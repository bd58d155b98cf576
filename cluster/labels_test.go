package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// Labels are replaced as a whole, reach watchers of other members, and survive a fence.
func TestSetLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t,
			clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Labels = map[string]string{"role": "sfu", "gen": "1"} }})
		c.Start("a", "b", "c")
		c.WaitAgreed(3 * time.Second)
		time.Sleep(10 * time.Second)
		a, b := c.Agent("a"), c.Agent("b")
		batches := b.Subscribe(t.Context())
		<-batches
		labels := map[string]string{"role": "recorder", "tier": "gold"}
		if err := a.SetLabels(labels); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(labels)
		labels["role"] = "changed by the caller later"
		if got := a.Snapshot().Self.Labels; !maps.Equal(got, want) {
			t.Errorf("the node's own labels are %v when the call returns", got)
		}
		select {
		case batch := <-batches:
			if m, _ := b.Member("a"); !slices.Equal(batch.Changed, []lease.NodeID{"a"}) || !maps.Equal(m.Labels, want) {
				t.Errorf("%+v; labels %v", batch, m.Labels)
			}
		case <-time.After(5 * time.Second):
			t.Error("the watcher of another node learns nothing")
		}
		c.WaitAgreed(5 * time.Second)

		many := make(map[string]string)
		for i := range lease.MaxLabels + 1 {
			many[fmt.Sprint(i)] = ""
		}
		for name, bad := range map[string]map[string]string{
			"empty key": {"": "x"}, "long value": {"k": strings.Repeat("x", lease.MaxValueBytes+1)}, "too many": many, "not UTF-8": {"k": "\xff"},
		} {
			if err := a.SetLabels(bad); err == nil || !maps.Equal(a.Snapshot().Self.Labels, want) {
				t.Errorf("%s: %v; labels %v", name, err, a.Snapshot().Self.Labels)
			}
		}

		c.Pause("a")
		time.Sleep(20 * time.Second)
		c.Resume("a")
		c.WaitAgreed(20 * time.Second)
		if m, _ := b.Member("a"); !maps.Equal(m.Labels, want) {
			t.Errorf("after a fence: %v", m.Labels)
		}
		if err := a.SetLabels(nil); err != nil || len(a.Snapshot().Self.Labels) > 0 {
			t.Errorf("none: %v, %v", err, a.Snapshot().Self.Labels)
		}
	})
}
