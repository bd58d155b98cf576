package affinitytest_test

import (
	"testing"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/affinitytest"
)

func TestMemory(t *testing.T) {
	affinitytest.Store(t, func(*testing.T) func() affinity.Store {
		memory := affinity.NewMemory()
		return func() affinity.Store { return memory }
	})
}
