package clustertest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// Check finds each kind of disagreement.
func TestDisagreementsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(c *clustertest.Cluster)
		want    string
	}{
		"crash": {func(c *clustertest.Cluster) { c.Crash("b") }, "a sees members [a b c], but the running nodes are [a c]"},
		"split": {func(c *clustertest.Cluster) { c.Split([]string{"a"}, []string{"b", "c"}); time.Sleep(10 * time.Second) }, "is owned by [a"},
		"cut":   {func(c *clustertest.Cluster) { c.Cut("a", "b"); c.Cut("c", "b"); time.Sleep(7 * time.Second) }, "b sees members [b], "},
		"deaf":  {func(c *clustertest.Cluster) { c.SetLossOf("b", 0, 1); time.Sleep(7 * time.Second) }, "b has table"}, // the table from before its fence
		"mute":  {func(c *clustertest.Cluster) { c.SetLossOf("b", 1, 0); time.Sleep(7 * time.Second) }, "a sees members [a c], "},
		"join":  {func(c *clustertest.Cluster) { c.Start("d") }, "has table"},
		"pause": {func(c *clustertest.Cluster) { c.Pause("b"); time.Sleep(7 * time.Second) }, "b has table"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := clustertest.New(t, clustertest.Options{})
				cl.Start("a", "b", "c")
				cl.WaitAgreed(2 * time.Second)
				c.breakIt(cl)
				if got := strings.Join(cl.Disagreements(), "\n"); !strings.Contains(got, c.want) {
					t.Errorf("disagreements lack %q:\n%s", c.want, got)
				}
			})
		})
	}
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 64 }})
		c.Start("a")
		b := c.StartWith("b", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Zone = "z" }))
		c.WaitAgreed(2 * time.Second)
		if b.Config().Partitions != 64 || b.Snapshot().Self.Zone != "z" {
			t.Errorf("configuration %+v", b.Config())
		}
		if n := len(b.Owned()) + len(c.Agent("a").Owned()); n != 64 {
			t.Errorf("%d partitions are owned, want 64", n)
		}
		c.Leave("b")
		c.WaitAgreed(time.Second)
	})
}
