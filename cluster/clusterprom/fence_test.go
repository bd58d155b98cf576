package clusterprom

import (
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// A fenced node still lists the members that it knew before the fence, but metrics about live members do not count
// them.
func TestLiveDuringFence(t *testing.T) {
	self, other := &cluster.Member{Profile: lease.Profile{ID: "a"}}, &cluster.Member{Profile: lease.Profile{ID: "b"}}
	s := &cluster.Snapshot{Self: self, Members: []*cluster.Member{self, other}}
	if n := len((&view{Snapshot: s}).live()); n != 2 {
		t.Errorf("%d live members, want 2", n)
	}
	s.Fenced = true
	if live := (&view{Snapshot: s}).live(); len(live) != 1 || live[0] != self {
		t.Errorf("live during a fence: %v", live)
	}
}
