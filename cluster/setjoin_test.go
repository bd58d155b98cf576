package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A node with seeds that lead nowhere is given others while it runs, and joins by them at once. Invalid seeds change
// nothing. Without seeds it goes on.
func TestSetJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		a := c.StartWith("a")
		lost := c.StartWith("b", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Join, cfg.Bootstrap, cfg.RejoinInterval = []string{"10.0.200.1:7946"}, true, time.Hour
		}))
		time.Sleep(time.Minute)
		if n := len(lost.Members()); n != 1 {
			t.Fatalf("%d members by a seed that does not exist", n)
		}
		if err := lost.SetJoin(a.Addr(), "nonsense"); err == nil || !slices.Equal(lost.Config().Join, []string{"10.0.200.1:7946"}) {
			t.Fatalf("%v, seeds %v", err, lost.Config().Join)
		}
		if err := lost.SetJoin("10.0.200.1:7946", a.Addr()); err != nil {
			t.Fatal(err)
		}
		if got := lost.Config().Join; !slices.Equal(got, []string{"10.0.200.1:7946", a.Addr()}) {
			t.Errorf("Config has seeds %v", got)
		}
		c.WaitAgreed(10 * time.Second)
		if err := lost.SetJoin(); err != nil || len(lost.Config().Join) != 0 {
			t.Errorf("without seeds: %v, %v", err, lost.Config().Join)
		}
		time.Sleep(time.Minute)
		c.WaitAgreed(time.Second)
	})
}
