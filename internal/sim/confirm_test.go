package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// Two members are cut off from a third member, meet a node whose clock is ahead, and crash. Their last messages are
// replayed when the time of the third member reaches the time of these messages. They do not make a dead node come
// back.
func TestExpiredNodeHadStepped(t *testing.T) {
	r := &tape{}
	c := newFleet(t, sim.Options{Tap: r.write, Config: func(cfg *node.Config) { cfg.MaxSkew = year }})
	n00 := c.StartWith("n00", sim.Setup{Bootstrap: true})
	n01 := c.StartWith("n01", sim.Setup{Seeds: []string{n00.Addr}})
	c.StartWith("n02", sim.Setup{Seeds: []string{n00.Addr}})
	c.StartWith("ahead", sim.Setup{Clock: 40 * time.Second, Bootstrap: true, Seeds: []string{n01.Addr}})
	c.Split([]string{"ahead"}, []string{"n00", "n01", "n02"})
	c.Run(5 * time.Second)
	c.Heal()
	c.Split([]string{"n00"}, []string{"ahead", "n01", "n02"})
	c.Run(2 * ttl)
	if got := n01.Members(); len(got) != 3 || len(n00.Members()) != 1 {
		t.Fatalf("n01 sees %v, n00 %v", got, n00.Members())
	}
	c.Crash("ahead", "n01", "n02")
	recorded := tape{messages: r.messages[len(r.messages)-40:]}
	c.Run(2 * ttl)
	g := c.guard()
	for range 60 {
		c.Run(time.Second)
		c.replay(recorded, 0)
		g.check("n00")
	}
}

// Replayed messages from more than a thousand nodes of a former cluster, whose time was ahead, fill the pending
// challenges of a member. A newcomer can join nevertheless.
func TestJoinWithPendingChallengesFull(t *testing.T) {
	c := started(t, 3, sim.Options{})
	recorded := formerNodes(c.Node("n00").Now())
	c.replay(recorded, 500*time.Millisecond)
	p := c.StartWith("new", sim.Setup{})
	c.replay(recorded, 500*time.Millisecond)
	if !slices.Contains(c.Node("n00").Members(), "new") || len(p.Members()) != 4 {
		t.Errorf("n00 sees %v, the newcomer %v", c.Node("n00").Members(), p.Members())
	}
}

// formerNodes returns recorded messages from so many nodes that they fill the pending challenges of a node.
func formerNodes(now time.Time) (recorded tape) {
	at := now.Add(10 * time.Minute)
	for i := range 1100 {
		s := lease.NewSet(at, lease.Record{Profile: lease.Profile{
			ID: lease.NodeID(fmt.Sprint("old", i)), Incarnation: 1, Addr: fmt.Sprint("nowhere:", i),
		}}, lease.Params{TTL: ttl})
		s.Establish()
		recorded.messages = append(recorded.messages, lease.Encode(s.Sync(at)))
	}
	return recorded
}

// The same messages fill the pending challenges of a newcomer, and then of both sides of a split that has ended. There
// is still room for a full state.
func TestStatesWithPendingChallengesFull(t *testing.T) {
	c := started(t, 4, sim.Options{})
	flood := func(until time.Duration, ids ...string) {
		recorded := formerNodes(c.Node("n00").Now())
		for end := c.Elapsed() + until; c.Elapsed() < end; c.Run(500 * time.Millisecond) {
			for _, m := range recorded.messages {
				for _, id := range ids {
					c.Inject(id, m)
				}
			}
		}
	}
	c.StartWith("new", sim.Setup{})
	flood(2*time.Second, "new")
	if members := c.Node("new").Members(); len(members) != 5 {
		t.Errorf("the newcomer sees %v", members)
	}
	c.Split([]string{"n00", "n01"}, []string{"n02", "n03", "new"})
	c.Run(70 * time.Second)
	c.Heal()
	flood(20*time.Second, c.IDs()...)
	c.check()
}

// Newcomers that list each other as seeds, one of them with a wrong clock, do not change the time of a cluster, because
// they wait for the answer of a member.
func TestWrongClocksTogether(t *testing.T) {
	for seed := range uint64(40) {
		var last *lease.Message
		c := started(t, 3, sim.Options{Seed: seed, Tap: func(b []byte) { last, _ = lease.Decode(b) }})
		seeds := []string{c.Node("n00").Addr, "10.0.0.3:7946", "10.0.0.4:7946"}
		c.StartWith("x", sim.Setup{Clock: 100 * year, Seeds: seeds})
		c.StartWith("y", sim.Setup{Seeds: seeds})
		c.Run(ttl)
		if by := int64(last.Stamp) - c.Node("n00").Now().UnixMilli(); by > 1000 {
			t.Errorf("seed %d: the time is %d ms ahead", seed, by)
		}
	}
}
