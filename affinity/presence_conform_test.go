package affinity_test

import (
	"testing"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/affinitytest"
)

func TestMemoryPresenceConforms(t *testing.T) {
	affinitytest.PresenceStore(t, func(*testing.T) (a, b affinity.PresenceStore) {
		m := affinity.NewMemoryPresence()
		return m, m
	})
}
