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

// The memory that a snapshot needs for lost members does not depend on the size of the cluster.
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
	for i := range rolled { // as if one pod after another got a new name
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

// The list of lost members is bounded, and begins with the member that was lost last.
func TestLostIsBounded(t *testing.T) {
	table, err := placement.Compute(placement.Input{Partitions: 8, Nodes: []placement.Node{{ID: "self", Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	self := lease.Incarnation{Node: "self", Number: 1}
	s := &Snapshot{State: events.Next(nil, "self", table, []lease.Incarnation{self}, true)}
	show := func(members ...lease.Incarnation) {
		next := &Snapshot{State: events.Next(s.State, "self", table, append(members, self), true)}
		next.fillLost(s, next.goneSince(s, time.Now()))
		s = next
	}
	for i := range uint64(maxLost + 10) {
		show(lease.Incarnation{Node: lease.NodeID(fmt.Sprintf("x%03d", i)), Number: i})
		show()
	}
	lost := s.Lost()
	if len(lost) != maxLost || lost[0].ID != "x265" || lost[maxLost-1].ID != "x010" {
		t.Errorf("%d are lost, %s the last, %s the first of these", len(lost), lost[0].ID, lost[len(lost)-1].ID)
	}
}

// If thousands of members are lost at the same time, counting what they owned takes one pass over the table and one
// pass over the members.
func BenchmarkLostAtOnce(b *testing.B) {
	const n = 5000
	in := placement.Input{Partitions: placement.MaxPartitions}
	var members []lease.Incarnation
	old := new(Snapshot)
	for i := range uint64(n) {
		id := lease.NodeID(fmt.Sprintf("x%04d", i))
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
		members = append(members, lease.Incarnation{Node: id, Number: i})
		old.owners = append(old.owners, &Member{Profile: lease.Profile{ID: id}})
	}
	table, err := placement.Compute(in)
	if err != nil {
		b.Fatal(err)
	}
	old.State = events.Next(nil, "x0000", table, members, true)
	s := &Snapshot{State: events.Next(old.State, "x0000", table, members[:1:1], true)}
	for b.Loop() {
		if s.fillLost(old, s.goneSince(old, time.Now())); len(s.lost) != maxLost || s.lost[0].ID != "x0001" || s.lost[0].Partitions == 0 {
			b.Fatalf("%d are lost, first %+v", len(s.lost), s.lost[0])
		}
	}
}
