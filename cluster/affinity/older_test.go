package affinity_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// A node ends while the store is away, or the store returns with data from before the node ended. So some pins name a
// dead incarnation although other nodes serve the rooms by then. These hosts must keep their rooms and replace the
// pins.
func TestDeadPinYields(t *testing.T) {
	for name, older := range map[string]bool{"the store was away": false, "the store has older data": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := newReplaced()
				store := &faulty{Store: data}
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				var rooms []string
				for _, room := range names(200) {
					if f.host("a", room, 2); f.resolve("a", room, 2).Node == "c" {
						rooms = append(rooms, room)
					}
				}
				earlier := data.memory().Copy()
				store.fails.Store(!older)
				f.crash("c")
				time.Sleep(soon)
				hosted := make(map[string]*affinity.Hosting)
				for _, room := range rooms {
					hosted[room] = f.host("a", room, 2)
				}
				if older {
					data.restore(earlier)
				}
				store.fails.Store(false)
				time.Sleep(time.Minute)
				after, away := pins(t, store), 0
				for room, h := range hosted {
					if lost(h) {
						away++
					} else if is := after[room]; is.Node == "c" || is.Epoch != h.Epoch() {
						t.Errorf("%s: the pin is %+v, the host has epoch %d", room, is, h.Epoch())
					}
				}
				if away > 0 || len(rooms) == 0 {
					t.Errorf("%d of %d rooms lost their host to the pin of a dead node", away, len(rooms))
				}
			})
		})
	}
}

// The store goes back to a copy of its data from before some hostings. Neither the host nor another node may see a
// smaller epoch than before.
func TestEpochNeverFalls(t *testing.T) {
	for name, c := range map[string]struct {
		way    string // nodes on which the room has lived since the copy
		hosted bool   // whether the last of these nodes still hosts it
	}{
		"the host is the pinned node again":    {"ba", true},
		"another node hosts the room":          {"b", true},
		"the room has ended":                   {"b", false},
		"the room has ended on its first node": {"ba", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := newReplaced()
				f := newFleet(t, data, affinity.Config{}, "a", "b", "c")
				var h *affinity.Hosting
				host := func(id string) {
					t.Helper()
					if _, err := f.rooms[id].Move(t.Context(), "r", lease.NodeID(id)); err != nil && !errors.Is(err, affinity.ErrNoPin) {
						t.Fatal(err)
					}
					var err error
					if h, err = f.rooms[id].Host(t.Context(), "r", affinity.Demand{Size: 2}); err != nil {
						t.Fatal(err)
					}
				}
				f.resolve("c", "r", 2)
				host("a")
				time.Sleep(time.Second)
				earlier := data.memory().Copy()
				for _, id := range c.way {
					host(string(id))
					time.Sleep(time.Second)
				}
				was, least := h, h.Epoch()
				if !c.hosted {
					if err := h.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // all nodes have noticed it
				} else if a := f.resolve("c", "r", 2); a.Epoch != least {
					t.Fatalf("c says %+v", a)
				}
				data.restore(earlier)
				if !c.hosted {
					time.Sleep(5 * time.Second)
					h, err := f.rooms["a"].Host(t.Context(), "r", affinity.Demand{Size: 2})
					if err != nil || h.Epoch() <= least {
						t.Fatalf("hosted again: %+v, %v; want an epoch above %d", h, err, least)
					}
					return
				}
				for range 200 {
					if e := was.Epoch(); e < least {
						t.Fatalf("the host had epoch %d, and has %d", least, e)
					}
					for _, id := range []string{"c", "a", "b"} {
						a := f.resolve(id, "r", 2)
						if id == "c" && a.Epoch != 0 && a.Epoch < least {
							t.Fatalf("c was told epoch %d, and now %+v", least, a)
						}
						least = max(least, a.Epoch)
					}
					time.Sleep(20 * time.Millisecond)
				}
				if a := f.resolve("c", "r", 2); lost(was) || a.Epoch != was.Epoch() {
					t.Errorf("lost: %v, %v; c says %+v", lost(was), was.Err(), a)
				}
			})
		})
	}
}

// Redis fails over to an empty server whose clock is behind, and no notification arrives. A node that knows the room
// must get a greater epoch.
func TestClockOfStoreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReplaced()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		at := f.Agent("b").Snapshot().Self
		ahead := pinstore.Pin{Incarnation: lease.Incarnation{Node: at.ID, Number: at.Incarnation}, Epoch: 1 << 52}
		op := pinstore.Op{Partition: f.Agent("a").Partition("r"), Room: "r", TTL: time.Hour, Set: ahead}
		store.Swap(t.Context(), op)
		was := f.resolve("a", "r", 2)
		store.failOver()
		if is := f.resolve("a", "r", 2); was.Epoch <= 1<<52 || is.Epoch <= was.Epoch {
			t.Errorf("it was %+v, is %+v", was, is)
		}
	})
}

// The store goes back to an older copy of its data, and its clock goes back to before the latest hosting. The node that
// fails over the room knows that hosting, so the new home must get a greater epoch.
func TestFailedOverWithClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		f := newFleet(t, data, affinity.Config{}, "a", "b", "c")
		f.resolve("c", "r", 2)
		first := f.move("c", "a")
		earlier := data.memory().Copy()
		at := f.Agent("b").Snapshot().Self
		later := pinstore.Pin{Incarnation: lease.Incarnation{Node: at.ID, Number: at.Incarnation}, Epoch: 1 << 52}
		data.Swap(t.Context(), pinstore.Op{
			Partition: first.Partition, Room: "r", If: pinstore.Pin{Incarnation: first.Incarnation}, Set: later, TTL: time.Hour,
		})
		time.Sleep(time.Second)
		was := f.resolve("c", "r", 2)
		f.crash("a")
		f.crash("b")
		data.restore(earlier)
		time.Sleep(2 * soon)
		if is := pins(t, data)["r"]; is.Node != "c" || was.Epoch <= 1<<52 || is.Epoch <= was.Epoch {
			t.Errorf("the room was known as %+v, and is pinned to %+v", was, is)
		}
	})
}

// The store's clock jumps ahead, or the store evicts pins, so pins disappear while their rooms run. Another node claims
// the rooms before their hosts restore the pins. The hosts must take over the new pins and write the needs of their
// rooms into them.
func TestPinsExpireEarly(t *testing.T) {
	for name, told := range map[string]bool{"the hosts are notified": true, "the hosts learn of it from the claims": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newReplaced()
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				hosted := make(map[*affinity.Hosting]uint64)
				for _, room := range names(60) {
					h := f.host("a", room, 2)
					hosted[h] = h.Epoch()
				}
				time.Sleep(time.Minute)
				store.failOver() // this loses the heartbeats, too
				for h := range hosted {
					owner := string(f.owner(h.Room()))
					other := f.not(owner)
					if told {
						f.rooms[owner].Changed(h.Room())
					}
					f.rooms[other].Forget(h.Room())
					f.resolve(other, h.Room(), 1)
				}
				time.Sleep(time.Minute)
				after := pins(t, store)
				for h, was := range hosted {
					is := after[h.Room()]
					if lost(h) || h.Epoch() <= was || is.Node != f.owner(h.Room()) || is.Epoch != h.Epoch() || is.Size != 2 {
						t.Fatalf("%s: lost %v, %v; it had epoch %d and has %d; its pin: %v", h.Room(), lost(h), h.Err(), was, h.Epoch(), is)
					}
				}
			})
		})
	}
}

// A cluster has restarted with clocks that are an hour behind, so pins name dead incarnations with greater numbers than
// the running incarnations. The nodes must still host these rooms, with greater epochs.
func TestClockBack(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		pin := func(room string) pinstore.Pin {
			self := f.Agent(string(f.owner(room))).Snapshot().Self
			later := lease.Incarnation{Node: self.ID, Number: self.Incarnation + uint64(time.Hour)}
			return f.store.Swap(t.Context(), pinstore.Op{
				Partition: f.Agent("a").Partition(room), Room: room, TTL: 10 * time.Hour, Set: pinstore.Pin{Incarnation: later, Size: 2},
			})[0].Pin
		}
		before := make(map[string]pinstore.Pin)
		for _, room := range names(20) {
			before[room] = pin(room)
		}
		time.Sleep(2 * ttl)
		for room, was := range before {
			h := f.hostAt(string(was.Node), room, 2)
			if h.Epoch() <= was.Epoch {
				t.Errorf("%s: epoch %d after %d", room, h.Epoch(), was.Epoch)
			}
			if a := f.resolve("a", room, 2); a.Node != was.Node || a.Epoch != h.Epoch() {
				t.Errorf("resolved to %+v; hosted by %+v", a, was.Node)
			}
		}
	})
}

// A later incarnation of the node is running, but gossip has not met it. The earlier incarnation must not take a room
// from it.
func TestLaterProcessKeepsRooms(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		self := f.Agent("a").Snapshot().Self
		later := lease.Incarnation{Node: self.ID, Number: self.Incarnation + 1}
		pin := f.store.Swap(t.Context(), pinstore.Op{
			Partition: f.Agent("a").Partition("r"), Room: "r", TTL: time.Hour, Set: pinstore.Pin{Incarnation: later, Size: 2},
		})[0].Pin
		for range 60 {
			if _, err := f.store.Heartbeat(t.Context(), later, ttl, nil); err != nil {
				t.Fatal(err)
			}
			if h, err := f.rooms["a"].Host(t.Context(), "r", affinity.Demand{Size: 2}); err == nil {
				t.Fatalf("hosted: %+v", h)
			}
			time.Sleep(time.Second)
		}
		if is := pins(t, f.store)["r"]; is != pin {
			t.Errorf("the pin was %+v and is %+v", pin, is)
		}
	})
}
