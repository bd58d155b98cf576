package affinity_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// silenceTime is long enough for members to be found silent.
const silenceTime = 30 * time.Second

// silent fails the test unless exactly these nodes are silent, according to the given node.
func (f *fleet) silent(when, at string, want ...lease.NodeID) {
	f.t.Helper()
	if got := f.rooms[at].Stats().Silent; !slices.Equal(got, want) {
		f.t.Errorf("%s: silent for %s are %q, want %q", when, at, got, want)
	}
}

// on counts how many of 60 rooms node a resolves to the given node.
func (f *fleet) on(node, prefix string) (rooms int) {
	f.t.Helper()
	for _, room := range names(60) {
		if f.resolve("a", prefix+room, 1).Node == lease.NodeID(node) {
			rooms++
		}
	}
	return rooms
}

// A member that uses another store is live in gossip, and each of the two stores would give a room its own home. So
// this member gets no new rooms, and each side lists the other side as silent. Rooms that are pinned to this member
// stay, because they may run there.
func TestMemberOnAnotherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := pinstore.NewMemory()
		f := newFleet(t, store, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a", "b")
		f.store = pinstore.NewMemory()
		f.start("x")
		if f.on("x", "early") == 0 {
			t.Fatal("a new member gets no rooms before it has been silent for long")
		}
		before := pins(t, store)
		time.Sleep(silenceTime)
		f.silent("with a store of its own", "a", "x")
		f.silent("with a store of its own", "b", "x")
		f.silent("with a store of its own", "x", "a", "b")
		if n := f.on("x", "late"); n > 0 {
			t.Errorf("%d of 60 rooms went to the member that is silent", n)
		}
		f.on("x", "early")
		for room, was := range pins(t, store) {
			if at, ok := before[room]; ok && at != was {
				t.Errorf("%s moved from %v to %v", room, at, was)
			}
		}
		_, err := f.rooms["a"].Move(t.Context(), "late"+names(1)[0], "x")
		if !errors.Is(err, affinity.ErrNotLive) || !strings.Contains(err.Error(), "heartbeats") {
			t.Errorf("moved to the member that is silent: %v", err)
		}
		e, err := f.rooms["a"].Explain(t.Context(), "another", affinity.Demand{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Candidates {
			if (c.Member.ID == "x") != strings.Contains(c.Why, "heartbeats") || (c.Preference == 0) != (c.Member.ID == "x") {
				t.Errorf("%s on preference %d: %s", c.Member.ID, c.Preference, c.Why)
			}
		}

		_ = f.rooms["x"].Close()
		f.store = store
		f.resolver("x")
		time.Sleep(silenceTime)
		for _, id := range []string{"a", "b", "x"} {
			f.silent("with the right store", id)
		}
		if f.on("x", "again") == 0 {
			t.Error("it gets no rooms with the right store")
		}
		for _, r := range f.rooms {
			_ = r.Close()
		}
		for line, want := range map[string]int{
			`level=WARN msg="live nodes send no heartbeats to this store" node=a nodes=1 first=[x]`: 1,
			`level=INFO msg="all live nodes use this store again" node=a`:                           1,
		} {
			if n := strings.Count(log.String(), line); n != want {
				t.Errorf("%d lines with %s, want %d:\n%s", n, line, want, log.String())
			}
		}
	})
}

// A member without a store gets no rooms, because nobody would host them there. The member is listed as silent if it
// states a capacity or has used the store before. Otherwise its application may use the agent for something else.
func TestMemberWithoutStore(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		f.Start("capacity")
		f.StartWith("none", clustertest.WithConfig(func(c *cluster.Config) { c.Capacity, c.Resources = 0, nil }))
		f.StartWith("before", clustertest.WithConfig(func(c *cluster.Config) { c.Capacity, c.Resources = 0, nil }))
		f.resolver("before")
		time.Sleep(silenceTime)
		f.silent("at first", "a", "capacity")
		_ = f.rooms["before"].Close()
		f.Restart("before")
		time.Sleep(silenceTime)
		f.silent("after a restart without the store", "a", "before", "capacity")
		for _, id := range []string{"capacity", "none", "before"} {
			if n := f.on(id, id); n > 0 {
				t.Errorf("%d of 60 rooms went to %s, which has no store", n, id)
			}
		}
	})
}

// A member can no longer reach the store. Its room stays there, even if the store loses the room's pin in the meantime.
func TestSilentMemberKeepsItsRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		f := newFleet(t, data, affinity.Config{}, "a", "b")
		cut := &faulty{Store: data}
		f.store = cut
		f.start("x")
		room := ""
		for _, r := range names(60) {
			if f.resolve("a", r, 1).Node == "x" {
				room = r
			}
		}
		h := f.hostAt("x", room, 1)
		cut.fails.Store(true)
		time.Sleep(silenceTime)
		f.silent("cut", "a", "x")
		data.empty()
		time.Sleep(silenceTime)
		if a := f.resolve("a", room, 1); a.Node != "x" || lost(h) {
			t.Errorf("the room that x hosts is at %+v, lost %v", a, lost(h))
		}
		cut.fails.Store(false)
		time.Sleep(silenceTime)
		if a := f.resolve("b", room, 1); a.Node != "x" || lost(h) {
			t.Errorf("afterwards it is at %+v, lost %v", a, lost(h))
		}
		f.silent("back", "a")
	})
}

// While all other nodes drain, as in a rolling restart, a silent member gets new rooms, because it is alive and no
// other node takes them.
func TestOnlySilentMembersTakeRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{}, "a")
		f.store = pinstore.NewMemory() // as if b could not reach the store
		f.start("b")
		time.Sleep(silenceTime)
		f.silent("before the drain", "a", "b")
		drain(t, f, "a")
		time.Sleep(silenceTime)
		if a := f.resolve("a", "room", 1); a.Node != "b" || !strings.Contains(a.Reason, "no heartbeats") {
			t.Errorf("a new room at a node that drains is at %+v, want b", a)
		}
		f.explained("while a drains", "another", "b", 1, "only while no other node does")
		f.explained("a room that lives at the silent member", "room", "b", 1, "only while no other node does")
	})
}

// explained fails the test unless Explain on node a says that the given node takes the room, with this preference and
// reason.
func (f *fleet) explained(when, room string, node lease.NodeID, preference int, why string) {
	f.t.Helper()
	e, err := f.rooms["a"].Explain(f.t.Context(), room, affinity.Demand{Size: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range e.Candidates {
		if c.Member.ID == node && (!c.Taken || c.Preference != preference || !strings.Contains(c.Why, why)) {
			f.t.Errorf("%s: %s is explained by %+v, want preference %d and %q", when, node, c, preference, why)
		}
	}
}

// Problems of a shared store, a process, a clock or the network never make a member silent.
func TestNobodyIsSilent(t *testing.T) {
	for name, trouble := range map[string]func(f *fleet, data *replaced, all []*faulty){
		"the store is away": func(_ *fleet, _ *replaced, all []*faulty) {
			each(all, func(s *faulty) { s.fails.Store(true) })
			time.Sleep(silenceTime)
			each(all, func(s *faulty) { s.fails.Store(false) })
		},
		"the store hangs, and comes back to one after the other": func(_ *fleet, _ *replaced, all []*faulty) {
			each(all, func(s *faulty) { s.hangs.Store(true) })
			time.Sleep(silenceTime)
			each(all, func(s *faulty) { s.hangs.Store(false); time.Sleep(2 * time.Second) })
		},
		"the store is slow": func(_ *fleet, _ *replaced, all []*faulty) {
			each(all, func(s *faulty) { s.heartbeatPause.Store(int64(120 * time.Millisecond)) })
			time.Sleep(silenceTime)
		},
		"the store loses its data": func(_ *fleet, data *replaced, _ []*faulty) {
			for range 5 {
				data.empty()
				time.Sleep(7 * time.Second)
				data.failOver()
				time.Sleep(5 * time.Second)
			}
		},
		"a node joins, ends, vanishes, is paused": func(f *fleet, _ *replaced, _ []*faulty) {
			f.start("late")
			time.Sleep(silenceTime)
			f.Pause("c")
			time.Sleep(silenceTime)
			f.Resume("c")
			time.Sleep(silenceTime)
			f.rooms["late"].Kill()
			delete(f.rooms, "late")
			f.Vanish("late")
		},
		"a clock is behind": func(f *fleet, _ *replaced, _ []*faulty) {
			f.StartWith("behind", clustertest.WithClockOffset(-4*time.Second))
			f.resolver("behind")
			time.Sleep(silenceTime)
		},
		"a node drains": func(f *fleet, _ *replaced, _ []*faulty) {
			if err := f.Agent("c").Drain(f.t.Context()); err != nil {
				f.t.Error(err)
			}
			_ = f.rooms["c"].Close()
			time.Sleep(silenceTime)
		},
		"the network is split": func(f *fleet, _ *replaced, _ []*faulty) {
			f.Split([]string{"a"}, []string{"b", "c"})
			time.Sleep(silenceTime)
			f.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := newReplaced()
				f := newFleet(t, data, affinity.Config{})
				var all []*faulty
				for _, id := range []string{"a", "b", "c"} {
					all = append(all, &faulty{Store: data})
					f.store = all[len(all)-1]
					f.start(id)
				}
				done := make(chan struct{})
				rooms := []*affinity.Resolver{f.rooms["a"], f.rooms["b"]}
				go func() {
					defer close(done)
					trouble(f, data, all)
					time.Sleep(silenceTime)
				}()
				for over := false; !over; {
					select {
					case <-done:
						over = true
					case <-time.After(500 * time.Millisecond):
					}
					for _, r := range rooms {
						if s := r.Stats().Silent; len(s) > 0 {
							t.Fatalf("silent: %q", s)
						}
					}
				}
			})
		})
	}
}

func each(all []*faulty, f func(*faulty)) {
	for _, s := range all {
		f(s)
	}
}

// While the store is away, a room that only silent members may host still gets a silent member.
func TestOnlySilentMembersTakeRoomsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a")
		f.store = pinstore.NewMemory() // as if b could not reach the store
		f.StartWith("b", clustertest.WithConfig(func(c *cluster.Config) { c.Labels = map[string]string{"recorder": "yes"} }))
		f.resolver("b")
		time.Sleep(silenceTime)
		f.silent("before the outage", "a", "b")
		store.fails.Store(true)
		a, err := f.rooms["a"].Resolve(t.Context(), "room", affinity.Demand{Size: 1, Require: map[string]string{"recorder": "yes"}})
		if err != nil || a.Node != "b" || a.Source != affinity.Degraded {
			t.Errorf("without the store, a room for b alone is at %+v, %v", a, err)
		}
		store.fails.Store(false)
	})
}
