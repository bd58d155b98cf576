package node_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/handoff"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The bound of a wait counts from the latest table that began it, also if the partition went
// to another node, and came back, between two turns of gossip.
func TestHandoffBound(t *testing.T) {
	const bound = 2 * time.Second
	for _, comesBack := range []bool{false, true} {
		w := newNetwork(t, func(c *node.Config) { c.Handoff = bound }, "a")
		without := w.nodes["a"].View().Table
		w.add("b")
		b := w.nodes["b"]
		waits := func() bool { return len(b.View().Runners) > 0 }
		for began := w.now; !waits(); {
			if w.run(10 * time.Millisecond); w.now.Sub(began) > 5*time.Second {
				t.Fatal("the new node waits for nothing")
			}
		}
		w.run(bound - 300*time.Millisecond) // node a never reports that its runs have returned
		if comesBack {
			b.AdoptTable(w.now, without)
			b.AdoptTable(w.now, b.View().Table)
		}
		w.run(time.Second)
		if early := b.View().Stats.HandoffOverruns > 0; early == comesBack {
			t.Errorf("comes back: %v, overdue: %v", comesBack, early)
		}
		w.run(bound)
		if b.View().Stats.HandoffOverruns == 0 {
			t.Error("the wait has no end")
		}
	}
}

// A new member may run partitions, and say so, before the table of this node names it: its news
// comes once or twice, and lookups would go to the former owner until the bound.
func TestNewsOfNewMember(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.Handoff = time.Minute }, "a", "b")
	a, former := w.nodes["a"], w.nodes["a"].View().Table
	w.add("c")
	c := w.nodes["c"]
	for a.Leases().AddrOf(c.Handle()) == "" {
		w.run(10 * time.Millisecond)
	}
	if a.View().Table != former {
		t.Fatal("the table came with the member")
	}
	var ofB []placement.Partition
	for p := range placement.Partition(8) {
		if owner, _ := former.Owner(p); owner == "b" {
			ofB = append(ofB, p)
		}
	}
	for _, b := range (handoff.Answer{To: a.Handle(), Runs: ofB}).Encode() {
		m := c.Leases().Request(w.now, nil, nil)
		m.Handoff = b
		a.Receive(w.now, lease.Encode(m))
	}
	for a.View().Table == former {
		w.run(10 * time.Millisecond)
	}
	moved := 0
	for _, p := range ofB {
		if owner, _ := a.View().Table.Owner(p); owner != "c" {
			continue
		}
		moved++
		if other := a.View().Runners[p]; other != "" {
			t.Errorf("partition %d, which c runs, runs on %s", p, other)
		}
	}
	if moved == 0 {
		t.Error("no partition moved from b to c")
	}
}
