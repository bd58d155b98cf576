package affinitytest_test

import (
	"testing"

	"github.com/roost-cluster/roost/placement/affinity"
	"github.com/roost-cluster/roost/placement/affinity/affinitytest"
)

func TestMemory(t *testing.T) {
	affinitytest.Store(t, func(*testing.T) func() affinity.Store {
		memory := affinity.NewMemory()
		return func() affinity.Store { return memory }
	})
}
