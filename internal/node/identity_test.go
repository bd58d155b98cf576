package node

import (
	"slices"
	"testing"

	"github.com/roost-cluster/roost/lease"
)

// A node whose identity already has the maximum of eight founders joins a seed with another founder. The new identity
// must match the former identity and the identity of the seed.
func TestFullIdentity(t *testing.T) {
	ours, theirs := lease.ClusterID{1, 2, 3, 4, 5, 6, 7, 8}, lease.ClusterID{9}
	id, err := meets(ours, theirs, true, false)
	if err != nil || !id.Same(theirs) || !id.Same(ours) || len(id) > lease.MaxFounders || !slices.IsSorted(id) {
		t.Errorf("%v, %v", id, err)
	}
	if back := id.Union(ours); !slices.Equal(back, ours) {
		t.Errorf("with the others it becomes %v", back)
	}
}
