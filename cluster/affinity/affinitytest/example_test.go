package affinitytest_test

import (
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity/affinitytest"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// This example tests a store of pins. A Memory keeps its data in the process, so all instances are the same Memory.
func ExampleStore() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		affinitytest.Store(t, func(*testing.T) (instance func() pinstore.Store) {
			store := pinstore.NewMemory()
			return func() pinstore.Store { return store }
		})
	}
}

// This example tests a store of participants.
func ExamplePresence() {
	_ = func(t *testing.T) { // func TestPresence(t *testing.T)
		affinitytest.Presence(t, func(*testing.T) (a, b presence.Store) {
			store := presence.NewMemory()
			return store, store
		})
	}
}
