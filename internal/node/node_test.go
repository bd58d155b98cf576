package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

const lapsed = "fenced: own lease expired; rejoining"

// A node that was paused for longer than its lease already owns nothing when it reads the next message. It discards the
// messages that arrived during the pause, and joins again.
func TestPausedNodeIsFenced(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	w.agreed(t)
	b := w.nodes["b"]
	before, message := b.View(), w.nodes["a"].Sync(w.now)
	w.stuck["b"] = true
	w.run(7 * time.Second)
	if b.View().Lease.Holds(w.now.Sub(epoch)) {
		t.Fatal("the lease of a paused node holds after 7 s")
	}
	b.Receive(w.now, message)
	v := b.View()
	if len(v.State.Owned()) != 0 || v.Phase != node.Joining || v.Table != before.Table || !v.Stale ||
		v.Stats.StaleDropped != 1 || len(v.Live.Members) != 1 {
		t.Errorf("after the pause: owns %d, %v, stale %t, %d discarded, %d members", len(v.State.Owned()), v.Phase,
			v.Stale, v.Stats.StaleDropped, len(v.Live.Members))
	}
	if before.Lease == v.Lease || before.Lease.Holds(w.now.Sub(epoch)) || !v.Lease.Holds(w.now.Sub(epoch)) {
		t.Error("the earlier lease must stay expired, and a new one must hold")
	}
	w.stuck["b"] = false
	w.run(3 * time.Second)
	w.agreed(t)
	if before.Lease.Holds(w.now.Sub(epoch)) {
		t.Error("the lease of before the pause holds again")
	}
	if n := w.logged("b", lapsed); n != 1 || b.View().Stats.Fences != 1 {
		t.Errorf("%d fences, logged %d times", b.View().Stats.Fences, n)
	}
}

// A node that cannot send is fenced, too, because its own lease counts from the last heartbeat that was sent.
func TestMuteNodeIsFenced(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	w.mute["b"] = true
	w.run(3700 * time.Millisecond) // heartbeats are 2.2 s apart at most
	if w.owned("a")+w.owned("b") != 8 || w.nodes["b"].View().Stats.Fences != 0 {
		t.Error("fenced before its lease expired")
	}
	for range 250 {
		w.run(10 * time.Millisecond)
		if sum := w.owned("a") + w.owned("b"); sum > 8 {
			t.Fatalf("both together own %d partitions of 8", sum)
		}
	}
	if w.nodes["b"].View().Stats.Fences != 1 || w.owned("b") != 0 {
		t.Errorf("%d fences, owns %d", w.nodes["b"].View().Stats.Fences, w.owned("b"))
	}
	w.mute["b"] = false
	w.run(10 * time.Second)
	w.agreed(t)
}

// If nobody answers its exchanges, a fenced node rejoins via gossip alone, and knows all members by then. After that,
// it sends nothing to expired members.
func TestRejoinByGossip(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	w := newNetwork(t, nil, ids...)
	w.silent = true
	w.stuck["b"] = true
	w.run(10*time.Second + 100*time.Millisecond) // so b listens just after the last relay of some heartbeat
	w.stuck["b"] = false
	b := w.nodes["b"]
	w.run(10 * time.Millisecond)
	for limit := w.now.Add(3 * time.Second); b.View().Phase == node.Joining && w.now.Before(limit); {
		w.run(10 * time.Millisecond)
	}
	if n := len(b.View().Live.Members); b.View().Phase == node.Joining || n != len(ids) {
		t.Errorf("%v with %d members of %d", b.View().Phase, n, len(ids))
	}
	w.run(3 * time.Second)
	w.agreed(t)
	w.stuck["c"] = true
	w.run(7 * time.Second) // the lease of c expires
	w.sent = func(from string, p node.Packet) {
		if from == "b" && p.To == "c" {
			t.Error("sends to an expired member")
			w.sent = nil
		}
	}
	w.run(3 * time.Second)
}

// A member that is still joining has no table yet, so it does not count as diverging.
func TestSettlingMemberDoesNotDiverge(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	w.change = func(c *node.Config) { c.Seeds = []string{"silent"} }
	w.add("c")
	w.exchange("a", "c")
	w.run(3 * time.Second)
	if v := w.nodes["a"].View(); len(v.Live.Members) != 3 || v.Diverged != 0 {
		t.Errorf("%d members, of which %d diverge", len(v.Live.Members), v.Diverged)
	}
}

// A drain publishes exactly one state.
func TestDrainPublishesOnce(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	a := w.nodes["a"]
	before := a.View().State.Version
	a.Drain(w.now)
	w.run(5 * time.Second)
	if n := a.View().State.Version - before; n != 1 {
		t.Errorf("published %d states", n)
	}
}

// A packet that was composed before a fence does not renew the lease after the fence.
func TestLateSent(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	var late []node.Packet
	w.sent = func(from string, p node.Packet) {
		if from == "b" {
			late = append(late, p)
		}
	}
	w.run(2 * time.Second)
	w.stuck["b"] = true
	w.run(7 * time.Second)
	b := w.nodes["b"]
	former := b.View().Lease
	b.Ready(w.now)
	lease := b.View().Lease
	until := lasts(lease)
	for _, p := range late {
		b.Sent(w.now, p)
	}
	if len(late) == 0 || former == lease || lasts(former) > 0 || lasts(lease) != until {
		t.Error("a late packet renewed a lease")
	}
}

// lasts returns how long after the start of its node a lease holds, in steps of 10 ms.
func lasts(l *node.OwnLease) (d time.Duration) {
	for l.Holds(d + 10*time.Millisecond) {
		d += 10 * time.Millisecond
	}
	return d
}

// If a turn takes so long that the own lease expires before the heartbeat is sent, the heartbeat does not renew the
// lease. Other nodes have taken over, and the node only notices this when it is fenced.
func TestSentAfterExpiry(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	b := w.nodes["b"]
	w.stuck["b"] = true
	for b.View().Lease.Holds(w.now.Add(20 * time.Millisecond).Sub(epoch)) {
		w.run(10 * time.Millisecond)
	}
	r := b.Ready(w.now) // this turn has a heartbeat, and takes a second
	w.run(time.Second)
	if w.owned("a") != 8 {
		t.Fatal("the other node has not taken over")
	}
	for _, p := range r.Packets {
		b.Sent(w.now, p)
	}
	if w.owned("b") > 0 {
		t.Errorf("owns %d partitions that the other node owns, too", w.owned("b"))
	}
	w.stuck["b"] = false
	w.run(3 * time.Second)
	w.agreed(t)
	if b.View().Stats.Fences != 1 {
		t.Errorf("fenced itself %d times", b.View().Stats.Fences)
	}
}

// A later process with the same id ends the earlier process.
func TestDuplicateEndsNode(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	b := w.nodes["b"]
	w.change = func(c *node.Config) { c.Self.ID, c.Self.Incarnation = "b", 99 }
	w.add("b2")
	w.run(4 * time.Second)
	v := b.View()
	if v.Phase != node.Over || !v.Ended || v.Table != nil || len(v.State.Owned()) != 0 || v.Lease.Holds(w.now.Sub(epoch)) {
		t.Errorf("the earlier process: %v, owns %d", v.Phase, len(v.State.Owned()))
	}
	if r := b.Ready(w.now); !r.Next.IsZero() || len(r.Packets) > 0 || r.Duplicate != nil {
		t.Errorf("an ended node wants %+v", r)
	}
	w.ids = []string{"a", "b2"}
	w.run(time.Second)
	w.agreed(t)
}

// A node whose clock is ahead of the cluster's clock owns nothing but still computes tables. It logs the reason once a
// minute.
func TestClockFence(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.MaxSkew = 2 * time.Second }, "a", "b", "c")
	c := w.nodes["c"]
	w.clock["c"] = 2300 * time.Millisecond // less than the TTL, so the node does not take the jump for a pause
	w.run(90 * time.Second)
	v := c.View()
	if v.Phase != node.Settling || len(v.State.Owned()) != 0 || c.View().Stats.Fences != 1 ||
		v.Table.Digest() != w.nodes["a"].View().Table.Digest() {
		t.Errorf("%v, owns %d, %d fences, table %v", v.Phase, len(v.State.Owned()), c.View().Stats.Fences, v.Table)
	}
	if n := w.logged("c", "owns nothing", "cause", "clock_ahead"); n != 2 {
		t.Errorf("logged %d times in 90 s", n)
	}
	if n := w.logged("a", "rejected heartbeats: sender's clock too far ahead"); n != 2 {
		t.Errorf("the others logged %d times in 90 s that they reject heartbeats", n)
	}
	w.clock["c"] = 1900 * time.Millisecond
	w.run(6 * time.Second)
	if c.View().Phase != node.Settling {
		t.Errorf("near the limit it is %v", c.View().Phase)
	}
	w.clock["c"] = 1700 * time.Millisecond
	w.run(6 * time.Second)
	w.agreed(t)
}

// Every refusal is counted, but at most one per second is logged.
func TestRefused(t *testing.T) {
	w := newNetwork(t, nil, "a")
	for range 30 {
		w.nodes["a"].Refused(w.now, errors.New("other settings"))
		w.run(100 * time.Millisecond)
	}
	if n := w.logged("a", "refused a node with other settings"); n != 3 || w.nodes["a"].View().Stats.NodesRefused != 30 {
		t.Errorf("counted %d, logged %d", w.nodes["a"].View().Stats.NodesRefused, n)
	}
}

// A change is passed on immediately, not with the next round of gossip.
func TestUrgentNews(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	a, b := w.nodes["a"], w.nodes["b"]
	b.Ready(w.now)
	a.SetWeight(w.now, 50)
	b.Receive(w.now, a.Ready(w.now).Packets[0].Bytes)
	b.Ready(w.now)
	if wait := b.Ready(w.now).Next.Sub(w.now); wait > 20*time.Millisecond {
		t.Errorf("the next round of gossip is %v away", wait)
	}
}
