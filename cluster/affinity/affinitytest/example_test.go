package affinitytest_test

import (
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity/affinitytest"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// A test of a store of pins. All instances of a Memory are the same one.
func ExampleStore() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		affinitytest.Store(t, func(*testing.T) (instance func() pinstore.Store) {
			store := pinstore.NewMemory()
			return func() pinstore.Store { return store }
		})
	}
}

// A test of a store of participants.
func ExamplePresence() {
	_ = func(t *testing.T) { // func TestPresence(t *testing.T)
		affinitytest.Presence(t, func(*testing.T) (a, b presence.Store) {
			store := presence.NewMemory()
			return store, store
		})
	}
}
