package clustertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A test runs three nodes in memory, and one of them crashes. A virtual minute takes milliseconds.
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
			c.WaitAgreed(time.Second) // other nodes confirm that the process has ended

			for _, id := range c.IDs() {
				if c.Agent(id).IsOwner("room-17") {
					t.Logf("%s took room-17 over", id)
				}
			}
		})
	}
}
