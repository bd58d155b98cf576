package affinity_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// crowded is a fleet in which a hosts rooms that outgrow it. Participants of a room that moves follow it after a moment.
type crowded struct {
	*fleet
	hosted map[string]*affinity.Hosting // by room
	left   map[string][]time.Time       // when each room moved
	load   map[lease.NodeID]int64       // if the application measures it
	sends  int64                        // egress of each room, if the application measures it
	every  affinity.Demand
}

const roomUnits = 95

// newCrowded makes a host rooms. The nodes in full host one large room each, and the others know that.
func newCrowded(t *testing.T, cfg affinity.Config, rooms int, full ...string) *crowded {
	t.Helper()
	f := newFleet(t, pinstore.NewMemory(), cfg, "a", "b", "c")
	for _, id := range full {
		room := f.ownedBy(id, "full-")
		if err := f.hostAt(id, room, 1).Restate(affinity.Demand{Units: capacity * 78 / 100}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second)
	c := &crowded{fleet: f, hosted: make(map[string]*affinity.Hosting), left: make(map[string][]time.Time)}
	c.every = affinity.Demand{Units: roomUnits}
	for i := 0; len(c.hosted) < rooms; i++ {
		room := fmt.Sprint("r-", i)
		if a := f.resolve("b", room, 1); a.Node == "a" {
			c.hosted[room] = f.hostAt("a", room, 1)
		}
	}
	for _, h := range c.hosted {
		if err := h.Restate(c.every); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run lets time pass, while participants follow their rooms, and applications measure their loads.
func (c *crowded) run(d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(500 * time.Millisecond)
		for room, h := range c.hosted {
			var elsewhere *affinity.NotOwnerError
			if !lost(h) || !errors.As(h.Err(), &elsewhere) {
				continue
			}
			c.left[room] = append(c.left[room], time.Now())
			h, err := c.rooms[string(elsewhere.Owner.Node)].Host(c.t.Context(), room, c.every)
			if err != nil {
				c.t.Fatalf("%s follows to %s: %v", room, elsewhere.Owner.Node, err)
			}
			c.hosted[room] = h
		}
		if c.load != nil {
			for _, id := range c.IDs() {
				c.Agent(id).SetLoad(c.at(id) * roomUnits)
			}
		}
		if c.sends > 0 {
			c.measureEgress()
		}
	}
}

// measureEgress reports what each node sends. A room that has moved away from a still sends there for eight seconds.
func (c *crowded) measureEgress() {
	c.t.Helper()
	for _, id := range c.IDs() {
		sending := c.at(id)
		for _, times := range c.left {
			if id == "a" && time.Since(times[len(times)-1]) < 8*time.Second {
				sending++
			}
		}
		if err := c.Agent(id).SetUse(map[string]int64{"egress": sending * c.sends}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// at returns how many rooms a node hosts.
func (c *crowded) at(id string) int64 { return int64(c.rooms[id].Stats().Hosted) }

func (c *crowded) moves() (n int) {
	for _, times := range c.left {
		n += len(times)
	}
	return n
}

// An overloaded node moves the fewest rooms that bring it below its soft ceiling, and stops there.
func TestRebalance(t *testing.T) {
	for what, cfg := range map[string]affinity.Config{
		"computed load": {Rebalance: 90, ReportLoad: true},
		"measured load": {Rebalance: 90},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowded(t, cfg, 10)
				if !cfg.ReportLoad {
					c.load = make(map[lease.NodeID]int64)
				}
				c.run(30 * time.Second)
				if c.moves() != 2 || c.at("a") != 8 {
					t.Errorf("%d rooms moved, %d stayed; want 2 of 10, which leaves 760 of 800 units", c.moves(), c.at("a"))
				}
				if s := c.rooms["a"].Stats(); s.Rebalanced != 2 || s.Excess != 0 {
					t.Errorf("counted %d rooms, excess %d", s.Rebalanced, s.Excess)
				}
				c.run(time.Minute)
				if cfg.ReportLoad {
					time.Sleep(10 * time.Minute) // until the rooms that moved may move again
				}
				c.run(time.Second)
				if c.moves() != 2 {
					t.Errorf("%d rooms moved in all, want 2", c.moves())
				}
			})
		})
	}
}

// A node whose egress is almost used up moves the fewest rooms that help, although its rooms cost little, and gets no
// new rooms.
func TestRebalanceByResource(t *testing.T) {
	for what, cfg := range map[string]affinity.Config{
		"computed load": {Rebalance: 90, ReportLoad: true},
		"measured load": {Rebalance: 90},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowded(t, cfg, 10)
				c.every = affinity.Demand{Units: 20} // of 1,000
				for _, h := range c.hosted {
					if err := h.Restate(c.every); err != nil {
						t.Fatal(err)
					}
				}
				c.sends = egress * 95 / 100 / 10
				c.measureEgress()
				time.Sleep(5 * time.Second) // the loads are known
				for _, room := range names(100) {
					if at := c.resolve("b", "new-"+room, 1).Node; at == "a" {
						t.Fatalf("%s is placed on the node whose egress is used up", room)
					}
				}
				c.run(time.Minute)
				if c.moves() != 2 || c.at("a") != 8 {
					t.Errorf("%d rooms moved, %d stayed; want 2 of 10, which leaves 76 %% of the egress", c.moves(), c.at("a"))
				}
				if s := c.rooms["a"].Stats(); s.Rebalanced != 2 || s.Excess != 0 {
					t.Errorf("counted %d rooms, excess %d", s.Rebalanced, s.Excess)
				}
			})
		})
	}
}

// Rooms do not move to a node that lacks headroom for their share of the egress.
func TestRebalanceByResourceNeedsHeadroom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 10)
		c.every = affinity.Demand{Units: 20}
		for _, h := range c.hosted {
			if err := h.Restate(c.every); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"b", "c", "a"} {
			percent := map[string]int64{"a": 95, "b": 64, "c": 75}[id] // each room sends 9.5 %
			if err := c.Agent(id).SetUse(map[string]int64{"egress": egress * percent / 100}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second) // the others know the load
		}
		c.run(time.Second)
		if s := c.rooms["a"].Stats(); c.moves() != 1 || c.at("b") != 1 || s.Excess != 55 {
			t.Errorf("%d rooms moved, excess %d; want 1 of 2, and 55", c.moves(), s.Excess)
		}
	})
}

// The reason says why a room moved.
func TestRebalanceSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 10)
		moves := c.published("a")
		c.run(10 * time.Second)
		synctest.Wait()
		for _, m := range moves.moves() {
			if m.From.Node != "a" || m.Reason != "its node was overloaded" {
				t.Errorf("published %+v", m)
			}
		}
		if len(moves.moves()) != 2 {
			t.Errorf("published %d moves", len(moves.moves()))
		}
	})
}

// Without Rebalance, no room moves because of load.
func TestRebalanceIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{ReportLoad: true}, 10)
		c.run(time.Minute)
		if c.moves() != 0 || c.at("a") != 10 {
			t.Errorf("%d rooms moved", c.moves())
		}
	})
}

// A node between its soft ceiling and Rebalance keeps its rooms.
func TestRebalanceBetweenTheMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 9) // 855 of 1,000 units
		c.run(time.Minute)
		if c.moves() != 0 {
			t.Errorf("%d rooms moved", c.moves())
		}
	})
}

// A room that has moved stays for ten minutes. If its new node becomes overloaded, another room leaves that node,
// even if the first room would fit better.
func TestRebalanceRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 10)
		c.run(10 * time.Second)
		for room, h := range c.hosted {
			if c.left[room] == nil && h.Release(t.Context()) == nil {
				delete(c.hosted, room)
			}
		}
		var to lease.NodeID
		var rested string
		for room := range c.hosted {
			rested = room
		}
		if a := c.resolve("a", rested, 1); a.Node == "a" {
			t.Fatalf("%s has not moved", rested)
		} else {
			to = a.Node
		}
		overload := func(own string, units int64) {
			t.Helper()
			c.hosted[own] = c.host(string(to), own, 1)
			if _, err := c.rooms["a"].Move(t.Context(), own, to); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.hosted[rested].Restate(affinity.Demand{Units: 200}), c.hosted[own].Restate(affinity.Demand{Units: units})); err != nil {
				t.Fatal(err)
			}
		}
		own := c.ownedBy(string(to), "own-")
		c.every = affinity.Demand{Units: 100}
		overload(own, 750)
		c.run(9 * time.Minute)
		if len(c.left[rested]) != 1 || len(c.left[own]) != 1 {
			t.Errorf("the rested room moved %d times and the other %d times; want 1 and 1", len(c.left[rested]), len(c.left[own]))
		}
	})
}

// While no other node has headroom, no room moves. When a node joins, rooms move to it.
func TestRebalanceNeedsHeadroom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 10, "b", "c")
		c.run(time.Minute)
		if s := c.rooms["a"].Stats(); c.moves() != 0 || s.Excess != 150 {
			t.Errorf("%d rooms moved, excess %d; want 0 and 150", c.moves(), s.Excess)
		}
		c.start("d")
		c.run(time.Minute)
		if c.moves() != 2 || c.at("d") != 2 {
			t.Errorf("%d rooms moved, %d to the new node", c.moves(), c.at("d"))
		}
	})
}

// Two overloaded nodes fill a third one to its soft ceiling and not above.
func TestRebalanceOfTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, affinity.Config{Rebalance: 90, ReportLoad: true}, 18)
		n := 0
		for room := range c.hosted {
			if n++; n > 9 {
				break
			}
			if _, err := c.rooms["a"].Move(t.Context(), room, "b"); err != nil {
				t.Fatal(err)
			}
		}
		c.run(10 * time.Second)
		// Rooms that were moved to b rest. New ones at b and a make both overloaded.
		for _, id := range []string{"a", "b"} {
			for i, extra := 0, 0; extra < 6; i++ {
				room := fmt.Sprint("x", id, i)
				if c.resolve("c", room, 1).Node == lease.NodeID(id) {
					c.hosted[room] = c.hostAt(id, room, 1)
					extra++
				}
			}
		}
		for _, h := range c.hosted {
			if !lost(h) {
				_ = h.Restate(c.every)
			}
		}
		for range 120 {
			c.run(time.Second)
			if load := c.at("c") * roomUnits; load > capacity*80/100 {
				t.Fatalf("node c carries %d units", load)
			}
		}
		if c.at("c") == 0 {
			t.Error("no room moved to c")
		}
	})
}
