package cluster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// What a snapshot keeps of members that are gone does not grow with the cluster.
func TestLostKeepsNoSnapshot(t *testing.T) {
	const nodes, rolled = 500, 256
	table, err := placement.Compute(placement.Input{
		Partitions: 8,
		Strategy:   placement.Rendezvous(),
		Nodes:      []placement.Node{{ID: "x", Weight: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func(first int, before *events.State) *Snapshot {
		s, members := &Snapshot{}, make([]Member, nodes)
		var live []lease.Incarnation
		for i := range members {
			members[i].ID = lease.NodeID(fmt.Sprintf("n%06d", first+i))
			s.Members, live = append(s.Members, &members[i]), append(live, lease.Incarnation{Node: members[i].ID, Number: 1})
		}
		s.State = events.Next(before, "x", table, live, false)
		return s
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	old := snapshot(0, nil)
	before := heap()
	for i := range rolled { // one pod after the other gets a new name
		s := snapshot(i+1, old.State)
		s.fillLost(old, s.goneSince(old, time.Now()))
		s.fillParting(old)
		old = s
	}
	kept := max(heap(), before) - before
	if len(old.lost) != rolled || kept > 4<<20 {
		t.Errorf("%d lost members keep %d kB", len(old.lost), kept>>10)
	}
	runtime.KeepAlive(old)
}
