package affinitytest_test

import (
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/affinitytest"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

var _ affinity.Counter = (*presence.Tracker)(nil)

func TestMemory(t *testing.T) {
	affinitytest.Store(t, func(*testing.T) func() pinstore.Store {
		memory := pinstore.NewMemory()
		return func() pinstore.Store { return memory }
	})
}

func TestPresenceMemory(t *testing.T) {
	affinitytest.Presence(t, func(*testing.T) (a, b presence.Store) {
		m := presence.NewMemory()
		return m, m
	})
}
