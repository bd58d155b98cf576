package node_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// dials returns how often the nodes of the network try an address while time passes.
func (w *network) dials(addr string, span time.Duration) (count int) {
	for end := w.now.Add(span); w.now.Before(end); {
		w.run(10 * time.Millisecond)
		for _, id := range w.ids {
			count += len(slices.DeleteFunc(w.last[id].Exchanges, func(x node.Exchange) bool { return x.Addr != addr || w.stuck[id] }))
		}
	}
	return count
}

// In each round, a few nodes try the address of a lost member. They do not try the address of a member that has left.
func TestTriesLostMembers(t *testing.T) {
	w := newNetwork(t, nil, numbered(30)...)
	w.run(5 * time.Second)
	w.nodes["14"].Leave(w.now)
	w.run(time.Second)
	w.stuck["14"], w.stuck["15"] = true, true
	w.run(10 * time.Second)
	if lost := w.dials("15", 100*time.Second); lost < 10*node.LostAtOnce*2/3 || lost > 10*node.LostAtOnce*3/2 {
		t.Errorf("the lost member was tried %d times, want about %d", lost, 10*node.LostAtOnce)
	}
	if n := w.dials("14", 30*time.Second); n > 0 {
		t.Errorf("a member that left was tried %d times", n)
	}
	delete(w.stuck, "15")
	w.run(30 * time.Second)
	if n := w.dials("15", 30*time.Second); n > 0 {
		t.Errorf("a member was tried %d times", n)
	}
}

// If two lists of seeds have different lengths, every seed of both lists is tried.
func TestSeedsInTurn(t *testing.T) {
	short, long := numbered(70), numbered(300)
	for i := range long {
		long[i] = "long-" + long[i]
	}
	j := newJoining(t, func(c *node.Config) {
		c.Seeds, c.SeedNames, c.StartupGrace = short, []string{"long"}, time.Second
	})
	j.run(time.Minute, true)
	j.names, j.dialed = map[string]string{"long": strings.Join(long, " ")}, nil
	j.run(3*time.Minute, false)
	for _, addr := range slices.Concat(short, long) {
		if !slices.Contains(j.dialed, addr) {
			t.Errorf("%s had no turn", addr)
		}
	}
}

// fill gives node b a record of the maximum length.
func fill(cfg *node.Config) {
	if cfg.Self.ID != "b" {
		return
	}
	cfg.Self.Labels = map[string]string{}
	for i := range lease.MaxLabels {
		cfg.Self.Labels[strconv.Itoa(10+i)] = strings.Repeat("v", 50)
	}
	for cfg.Self.Validate() == nil {
		cfg.Self.Labels["10"] += "v"
	}
	cfg.Self.Labels["10"] = cfg.Self.Labels["10"][1:]
}

// Whatever a node with a record of the maximum length announces later, other nodes can read its record.
func TestFullRecord(t *testing.T) {
	w := newNetwork(t, fill, "a", "b")
	w.run(10 * time.Second)
	a, b := w.nodes["a"], w.nodes["b"]
	b.SetKeys(w.at("b"), strings.Repeat("k", lease.MaxKeysBytes))
	b.SetWeight(w.at("b"), lease.MaxWeight)
	b.DrainAt(w.at("b"), w.at("b").Add(time.Minute))
	for range 2 {
		b.Checked(w.at("b"), errors.New("no disk"))
	}
	w.comesAndGoes("b")
	self := b.Leases().Self()
	if self.FlappingUntil == 0 || self.RecentReturns == 0 || self.Drains == 0 || !self.Unhealthy || self.Keys == "" {
		t.Fatalf("b does not announce all that it could: %+v", self)
	}
	i := slices.IndexFunc(a.View().Live.Members, func(m lease.Member) bool { return m.ID == "b" })
	if i < 0 || !a.View().Live.Members[i].Unhealthy {
		t.Errorf("a cannot read the record of b, or not its latest: %+v", a.View().Live.Members)
	}
}

// The leave message of a node's previous process may arrive after the record of that process. In this case, the returns
// in the record no longer count.
func TestLateLeave(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	past := &lease.Record{
		Profile:       lease.Profile{ID: "b", Incarnation: 1, Addr: "b"},
		Version:       1,
		RecentReturns: a.Leases().Stamp(w.now.Add(20 * 6 * time.Second)),
	}
	hear := func(heartbeats ...lease.Heartbeat) {
		at := a.Leases().Stamp(w.now)
		b.Receive(w.now,
			lease.Encode(&lease.Message{From: a.Handle(), Stamp: at, SentAt: w.now, Records: []*lease.Record{past}, Heartbeats: heartbeats}))
		b.Ready(w.now)
	}
	if hear(); flapping(b).IsZero() || b.Leases().Self().FlappingUntil == 0 {
		t.Fatal("not flapping after a crash")
	}
	w.run(100 * time.Millisecond)
	at := a.Leases().Stamp(w.now)
	hear(lease.Heartbeat{Handle: lease.Incarnation{Node: "b", Number: 1}.Handle(), At: at, Renewed: at, State: lease.Left})
	if !flapping(b).IsZero() || b.Leases().Self().FlappingUntil != 0 || b.Leases().Self().RecentReturns != 0 {
		t.Errorf("flapping after a leave message: %v, %+v", !flapping(b).IsZero(), b.Leases().Self())
	}
	if _, err := lease.Decode(b.Sync(w.now)); err != nil {
		t.Errorf("nobody can read its state: %v", err)
	}
}

// After a step of the cluster time, a node announces a new end of its hold, but the hold lasts as long as before.
func TestHoldAfterStep(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	w.comesAndGoes("b")
	until := flapping(b)
	ahead := a.Leases().Stamp(w.now.Add(10 * time.Second))
	echo := a.Leases().Echo(w.now, b.Leases().Challenge(w.now, 7))
	echo.Stamp = ahead
	b.Receive(w.now, lease.Encode(echo))
	b.Ready(w.now)
	said, hold := b.Leases().Until(w.now, b.Leases().Self().FlappingUntil), until.Sub(w.now)
	if until.IsZero() || !flapping(b).Equal(until) || (said-hold).Abs() > time.Second || b.Leases().Stamp(w.now) < ahead {
		t.Errorf("flapping for %v, and states %v", until.Sub(w.now), said)
	}
}

// comesAndGoes pauses a node three times for longer than its lease, so that the node is flapping.
func (w *network) comesAndGoes(id string) {
	for range 3 {
		w.stuck[id] = true
		w.run(7 * time.Second)
		w.stuck[id] = false
		w.run(3 * time.Second)
	}
}

// flapping returns the end of a node's hold for flapping, or the zero time if it has no such hold.
func flapping(n *node.Node) time.Time {
	for _, h := range n.View().Holds {
		if h.Cause == node.CauseFlapping {
			return h.Until
		}
	}
	return time.Time{}
}
