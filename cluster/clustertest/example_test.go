package clustertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A program's own test: three nodes in memory, one of them dies, and a minute
// of the cluster's time takes milliseconds.
func Example() {
	_ = func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := clustertest.New(t, clustertest.Options{})
			c.Start("a", "b", "c")
			c.WaitAgreed(time.Second)

			owner, err := c.Agent("a").Place("room-17")
			if err != nil {
				t.Fatal(err)
			}
			c.Crash(string(owner.ID))
			c.WaitAgreed(7 * time.Second) // the lease has to run out

			for _, id := range c.IDs() {
				if c.Agent(id).IsOwner("room-17") {
					t.Logf("%s took room-17 over", id)
				}
			}
		})
	}
}
