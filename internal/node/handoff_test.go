package node_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/handoff"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The bound of a wait counts from the latest table that started the wait, even if the partition went to another node
// and came back between two rounds of gossip.
func TestHandoffBound(t *testing.T) {
	const bound = 10 * time.Second
	for _, comesBack := range []bool{false, true} {
		w := newNetwork(t, func(c *node.Config) {
			c.Handoff, c.Debounce, c.GossipInterval = bound, 10*time.Millisecond, time.Second
		}, "a")
		w.add("b")
		a, b := w.nodes["a"], w.nodes["b"]
		for began := w.now; len(b.View().Runners) == 0; {
			if w.run(10 * time.Millisecond); w.now.Sub(began) > 5*time.Second {
				t.Fatal("the new node waits for nothing")
			}
		}
		w.run(bound - 2*time.Second) // node a never reports that its runs have returned
		if comesBack {
			hearMany(w, a, b)
			gossips(t, w, b)
			sent := 0
			w.sent = func(from string, p node.Packet) {
				if m, _ := lease.Decode(p.Bytes); from == "b" && len(m.Heartbeats) > 0 {
					sent++
				}
			}
			mine := b.View().Table
			for i, weight := range []uint32{lease.MaxWeight, 100} {
				hearWeight(w, a, b, uint32(i), weight)
				if w.run(40 * time.Millisecond); (b.View().Table.Digest() == mine.Digest()) != (i == 1) {
					t.Fatalf("a has weight %d; the table of b is as it was: %v", weight, i == 0)
				}
			}
			if w.sent = nil; sent > 0 {
				t.Fatalf("%d packets with heartbeats meanwhile", sent)
			}
		}
		w.run(4 * time.Second)
		if early := b.View().Stats.HandoffOverruns > 0; early == comesBack {
			t.Errorf("comes back: %v, overdue: %v", comesBack, early)
		}
		w.run(bound)
		if b.View().Stats.HandoffOverruns == 0 {
			t.Error("the wait has no end")
		}
	}
}

// hearMany tells b about so many members that b does not announce a new table immediately.
func hearMany(w *network, a, b *node.Node) {
	at := a.Leases().Stamp(w.now)
	m := &lease.Message{From: a.Handle(), Stamp: at, SentAt: w.now}
	for i := range 70 {
		r := &lease.Record{Profile: lease.Profile{ID: lease.NodeID("many-" + strconv.Itoa(i)), Incarnation: 1}, Version: 1}
		m.Records = append(m.Records, r)
		m.Heartbeats = append(m.Heartbeats, lease.Heartbeat{Handle: r.Handle(), At: at, Renewed: at, State: lease.Active, Version: 1})
	}
	b.Receive(w.now, lease.Encode(m))
}

// hearWeight tells b about a later record of a, with another weight.
func hearWeight(w *network, a, b *node.Node, version, weight uint32) {
	r := *a.Leases().Self()
	r.Version, r.Weight = r.Version+1+version, weight
	m := &lease.Message{From: a.Handle(), Stamp: a.Leases().Stamp(w.now), SentAt: w.now, Records: []*lease.Record{&r}}
	b.Receive(w.now, lease.Encode(m))
}

// gossips makes b gossip heartbeats until b has to wait for more than 200 ms before it can send another heartbeat that
// other nodes can tell apart from the last.
func gossips(t *testing.T, w *network, b *node.Node) {
	t.Helper()
	for i := range 20 {
		w.run(50 * time.Millisecond)
		b.SetKeys(w.now, strconv.Itoa(i))
		w.run(10 * time.Millisecond)
		if b.Leases().NextHeartbeat(w.now).Sub(w.now) > 200*time.Millisecond {
			return
		}
	}
	t.Fatal("b can always send another heartbeat")
}

// A new member may announce that it runs partitions before the table of this node contains it. The announcement comes
// only once or twice, so the node must remember it. Otherwise lookups would go to the former owner until the bound.
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

// A node that has just joined announces when it begins to run its partitions, even if no node ran them before, because
// other nodes assume that the owner in their former table runs them.
func TestNewsOfFirstRuns(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.Handoff = time.Minute })
	w.add("b")
	w.add("a")
	a := w.nodes["a"]
	for a.View().Phase != node.Active {
		w.run(10 * time.Millisecond)
	}
	w.drop["a"] = true // b waits for a's answer
	w.run(500 * time.Millisecond)
	former := a.View().Table
	w.add("c")
	w.run(time.Second)
	w.drop["a"] = false
	var late time.Duration // how long a looks elsewhere for b's former partitions that c runs
	runs := 0
	for end := w.now.Add(3 * time.Second); w.now.Before(end); {
		w.run(10 * time.Millisecond)
		if runs = 0; w.owned("c") == 0 {
			continue
		}
		for _, p := range w.last["c"].State.Owned() {
			if owner, _ := former.Owner(p); owner != "b" {
				continue
			}
			if runs++; a.View().Runners[p] != "" {
				late += 10 * time.Millisecond
			}
		}
	}
	if runs == 0 || late > time.Second {
		t.Errorf("c runs %d partitions of b; a looked for them elsewhere for %v", runs, late)
	}
}
