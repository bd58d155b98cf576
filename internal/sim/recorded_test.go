package sim_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// tape keeps every thin-th message that the processes of a cluster send.
type tape struct {
	thin     int
	seen     int
	messages [][]byte
}

func (r *tape) write(message []byte) {
	last := len(r.messages) - 1
	if last >= 0 && bytes.Equal(message, r.messages[last]) {
		return // the same message to another recipient
	}
	if r.seen++; r.seen%max(1, r.thin) == 0 {
		r.messages = append(r.messages, message)
	}
}

// replay sends all messages of a tape to all nodes, spread over some time.
func (c fleet) replay(r tape, over time.Duration) {
	const bursts = 100
	for i := range bursts {
		for _, message := range r.messages[len(r.messages)*i/bursts : len(r.messages)*(i+1)/bursts] {
			for _, id := range c.IDs() {
				c.Inject(id, message)
			}
		}
		c.Run(over / bursts)
	}
	c.Run(10 * time.Millisecond)
}

// harm counts what must not happen at a node because of replayed messages.
type harm struct{ expired, fences, reincarnations, duplicates uint64 }

func (c fleet) harm(id string) harm {
	s := c.Node(id).View().Stats
	h := harm{expired: s.Expired, fences: s.Fences, reincarnations: s.Reincarnations}
	if c.Node(id).Duplicate() != nil {
		h.duplicates = 1
	}
	return h
}

// guard remembers the state of every node. Its check fails the test if a node has published an unwanted member since
// then, or was harmed.
type guard struct {
	recording
	before map[string]harm
}

func (c fleet) guard() guard {
	g := guard{c.record(), make(map[string]harm)}
	for _, id := range c.IDs() {
		g.before[id] = c.harm(id)
	}
	return g
}

func (g guard) check(wanted ...string) {
	c := g.c
	c.t.Helper()
	for _, id := range c.IDs() {
		if got := c.harm(id); got != g.before[id] {
			c.t.Errorf("%s, %v after the start: %+v, before it was %+v", id, c.Elapsed(), got, g.before[id])
		}
		for _, other := range append(g.joined(id), c.Node(id).Members()...) {
			if !slices.Contains(wanted, string(other)) {
				c.t.Errorf("%s, %v after the start: %s appeared", id, c.Elapsed(), other)
				break
			}
		}
	}
}

// day runs six nodes for a day, or for ten minutes without -long, with a restart, a drain, a change of weight, and a guest
// that joins and leaves. Then three of the nodes leave. The tape contains all messages of the first and the last
// minute, and one of a thousand messages in between, because a cluster at rest repeats itself.
func day(t *testing.T) (fleet, *tape) {
	t.Helper()
	r := &tape{}
	c := started(t, 6, sim.Options{Tap: r.write})
	c.Restart("n01")
	c.Start("guest")
	c.Run(ttl)
	c.drain("n02")
	c.Node("n03").SetWeight(50)
	c.Leave("guest")
	c.undrain("n02")
	c.Run(time.Minute)
	r.thin = 1000
	c.Run(10 * time.Minute)
	if *long {
		c.Run(24 * time.Hour)
	}
	r.thin = 1
	c.Run(time.Minute)
	for _, id := range ids(6)[3:] {
		c.Leave(id)
	}
	c.agree(time.Second)
	return c, r
}

// Recorded messages that are replayed at any later time change nothing, neither for the members nor for nodes that join
// during the replay, with right or wrong clocks.
func TestRecordedTraffic(t *testing.T) {
	t.Parallel()
	c, r := day(t)
	t.Logf("%d of %d messages are recorded", len(r.messages), r.seen)
	begin, stay := c.Elapsed(), c.IDs()
	later := []time.Duration{time.Second, 10 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}
	if !*long {
		later = []time.Duration{time.Second, 2 * time.Minute}
	}
	for _, at := range later {
		c.Run(begin + at - c.Elapsed())
		recorded, g := *r, c.guard()
		c.replay(recorded, 0)
		g.check(stay...)
		for _, clock := range []time.Duration{0, -30 * year, 100 * year} {
			id := fmt.Sprintf("new:%d:%d", at, clock)
			g := c.guard()
			c.joinDuring(recorded, id, clock)
			g.check(append(stay, id)...)
			c.Leave(id)
		}
	}
}

const year = 365 * 24 * time.Hour

// joinDuring starts a node with a wrong clock, and sends the tape to it and to the
// members while it joins.
func (c fleet) joinDuring(r tape, id string, clock time.Duration) {
	c.t.Helper()
	members := len(c.IDs())
	p := c.StartWith(id, sim.Setup{Clock: clock})
	c.replay(r, time.Second)
	c.await(id+" has joined", time.Second, func() bool { return len(p.Members()) == members+1 && p.View().Phase != node.Joining })
	if clock <= 0 { // others accept its heartbeats
		c.agree(time.Second)
	}
}

// All nodes of a cluster restart. One TTL later, messages from before the restart have no effect. Until then, a
// replayed heartbeat shows its true age.
func TestRecordedTrafficAfterRestart(t *testing.T) {
	r := &tape{}
	c := started(t, 6, sim.Options{Tap: r.write})
	c.Run(time.Minute)
	for _, down := range []time.Duration{ttl + time.Second, time.Minute, time.Hour} {
		recorded := *r
		c.Crash(c.IDs()...)
		c.Run(down)
		c.Start(ids(3)...)
		g := c.guard()
		c.replay(recorded, time.Second)
		c.agree(ttl)
		c.replay(recorded, 0)
		c.Run(ttl)
		g.check(ids(3)...)
		c.check()
	}
}

// All nodes of a cluster whose time was ahead of the wall clock restart. A recorded message has no effect, even when
// the time of the new cluster reaches the time of the recording.
func TestRecordedTrafficOfTheFuture(t *testing.T) {
	const ahead = 10 * time.Minute
	r := &tape{}
	c := newFleet(t, sim.Options{Tap: r.write, Config: func(cfg *node.Config) { cfg.MaxSkew = year }})
	c.StartWith("n00", sim.Setup{Clock: ahead, Bootstrap: true})
	c.Start(ids(6)[1:]...)
	c.agree(3 * time.Second)
	c.Run(time.Minute)
	recorded, stopped := *r, c.Elapsed()
	c.Crash(c.IDs()...)
	c.Start(ids(3)...)
	c.agree(3 * time.Second)
	g := c.guard()
	for c.Elapsed() < stopped+ahead+2*ttl {
		if d := stopped + ahead - c.Elapsed(); d > ttl {
			c.Run(d - ttl)
		}
		c.replay(recorded, time.Second)
		c.Run(time.Second)
		g.check(ids(3)...)
	}
	c.check()
}

// The clock of a newcomer shows the time of a recording. The newcomer joins the present cluster, and never mistakes the
// recorded cluster for the present one.
func TestNewcomerInRecordedTime(t *testing.T) {
	r := &tape{}
	c := started(t, 6, sim.Options{Tap: r.write})
	c.Run(time.Minute)
	for _, id := range ids(6)[3:] {
		c.Leave(id)
	}
	c.Start("guest") // its full exchange is worth replaying
	c.Run(time.Second)
	recorded, stopped := *r, c.Elapsed()
	c.Leave("guest")
	c.Run(10 * time.Minute)
	for _, seeds := range [][]string{nil, {"203.0.113.1:7946"}} { // the second seed answers nobody
		g := c.guard()
		p := c.StartWith("new", sim.Setup{Clock: stopped - c.Elapsed() - 3*time.Second, Seeds: seeds})
		for range 5 {
			c.replay(recorded, 500*time.Millisecond)
			for _, id := range p.Members() {
				if !slices.Contains([]string{"n00", "n01", "n02", "new"}, string(id)) {
					t.Fatalf("the newcomer sees %s", id)
				}
			}
		}
		if g.check("n00", "n01", "n02", "new"); seeds == nil {
			c.check()
		}
		c.Crash("new")
		c.Run(2 * ttl)
	}
}

// Two clusters started separately, and their times differ by up to half a century. When a seed connects them, they
// become one cluster, and no lease ends because of that.
func TestClustersMeet(t *testing.T) {
	for _, ahead := range []time.Duration{50 * year, time.Hour, 10 * time.Second, time.Second} {
		for _, laterDials := range []bool{true, false} {
			t.Run(fmt.Sprint(ahead, laterDials), func(t *testing.T) { meet(t, ahead, laterDials) })
		}
	}
}

func meet(t *testing.T, ahead time.Duration, laterDials bool) {
	c := newFleet(t, sim.Options{Config: func(cfg *node.Config) { cfg.MaxSkew = 99 * year }})
	one, other := ahead, time.Duration(0)
	if laterDials {
		one, other = other, one
	}
	a0 := c.StartWith("a0", sim.Setup{Clock: one, Bootstrap: true})
	b0 := c.StartWith("b0", sim.Setup{Clock: other, Bootstrap: true, Seeds: []string{a0.Addr}})
	for _, i := range []string{"1", "2"} {
		c.StartWith("a"+i, sim.Setup{Clock: one, Seeds: []string{a0.Addr}})
		c.StartWith("b"+i, sim.Setup{Clock: other, Seeds: []string{b0.Addr}})
	}
	c.Split([]string{"a0", "a1", "a2"}, []string{"b0", "b1", "b2"})
	c.Run(time.Minute)
	if a, b := a0.Members(), b0.Members(); len(a) != 3 || len(b) != 3 {
		t.Fatalf("apart, the clusters are %v and %v", a, b)
	}
	g := c.guard()
	c.Heal()
	t.Logf("agreement after %v", c.agree(12*time.Second+2*time.Second)) // RejoinInterval, with its jitter, + 2 s
	c.Run(2 * ttl)
	g.check(c.IDs()...)
	c.check()
	for _, id := range c.IDs() {
		if left := g.left(id); len(left) > 0 {
			t.Errorf("%s saw %v leave", id, left)
		}
	}
}
