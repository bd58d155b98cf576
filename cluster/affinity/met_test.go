package affinity

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// The memory that a node needs for the members that it has met must not grow with the number of snapshots.
func TestMetKeepsNoSnapshot(t *testing.T) {
	const nodes, rolled = 500, 256
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var known met
	before, now := heap(), time.Now()
	for first := range rolled { // one pod after the other gets a new name
		s, members := new(cluster.Snapshot), make([]cluster.Member, nodes)
		for i := range members {
			members[i].ID = lease.NodeID(fmt.Sprintf("n%06d", first+i))
			s.Members = append(s.Members, &members[i])
		}
		known.note(s, now.Add(time.Duration(first)*time.Second), time.Hour)
	}
	kept := max(heap(), before) - before
	if len(known.members) != nodes+rolled-1 || kept > 4<<20 {
		t.Errorf("%d members that were met keep %d kB", len(known.members), kept>>10)
	}
	runtime.KeepAlive(&known)
}
