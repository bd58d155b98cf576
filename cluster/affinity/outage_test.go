package affinity_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// While the store fails, joins are answered within the budget and hosted rooms stay. When the store is back, it gets
// the pins of these rooms.
func TestStoreInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(*faulty, bool){
		"down":    func(f *faulty, on bool) { f.fails.Store(on) },
		"hanging": func(f *faulty, on bool) { f.hangs.Store(on) },
		"late":    func(f *faulty, on bool) { f.late.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: pinstore.NewMemory()}
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				f.Agent(string(f.owner("big"))).SetLoad(700)
				time.Sleep(5 * time.Second)
				big := f.host("a", "big", 20)
				bigHome := f.resolve("b", "big", 20)
				if bigHome.Source == affinity.Hash || bigHome.Node == f.owner("big") {
					t.Fatalf("it is no override: %+v", bigHome)
				}
				f.resolve("b", "small", 2)

				trouble(store, true)
				for i := range 20 {
					for _, room := range append([]string{"big", "small"}, names(10)...) {
						since := time.Now()
						a := f.resolve("b", room, 20)
						if took := time.Since(since); took > 160*time.Millisecond {
							t.Fatalf("%s was resolved after %v", room, took)
						}
						if a.Source != affinity.Degraded || a.Epoch != 0 || a.Member == nil {
							t.Fatalf("resolved to %+v, want a degraded answer", a)
						}
						switch room {
						case "big": // the last known node
							if a.Incarnation != bigHome.Incarnation {
								t.Fatalf("big is said to live on %s, it lives on %s", a.Node, bigHome.Node)
							}
						case "r-9":
							// After a while, all nodes place the room by hash, without sending a claim.
							if i > 0 && a.Node != f.owner(room) {
								t.Fatalf("%s is placed on %s, its owner is %s", room, a.Node, f.owner(room))
							}
						}
					}
					time.Sleep(300 * time.Millisecond)
				}
				// A new room is hosted on the node that its hash selects.
				owner := string(f.owner("r-9"))
				fresh, err := f.rooms[owner].Host(t.Context(), "r-9", affinity.Demand{Size: 2})
				if err != nil || fresh.Epoch() != 0 {
					t.Fatalf("%s cannot host r-9 without the store: %v", owner, err)
				}
				if _, err := f.rooms["a"].Move(t.Context(), "big", "a"); !errors.Is(err, pinstore.ErrStore) {
					t.Errorf("moving without the store: %v", err)
				}
				if !f.rooms["b"].Stats().StoreDoubt {
					t.Error("Stats do not show that the store does not answer")
				}
				time.Sleep(time.Minute)
				if lost(big) || lost(fresh) {
					t.Fatalf("running rooms were lost: %v, %v", big.Err(), fresh.Err())
				}

				trouble(store, false)
				time.Sleep(5 * time.Second)
				for id, r := range f.rooms { // most nodes had no calls since then
					if r.Stats().StoreDoubt {
						t.Errorf("%s still doubts the store", id)
					}
				}
				if fresh.Epoch() == 0 || lost(fresh) {
					t.Errorf("the store's word for what was hosted without it: epoch %d, %v", fresh.Epoch(), fresh.Err())
				}
				if a := f.resolve("c", "big", 20); a.Incarnation != bigHome.Incarnation || a.Epoch != bigHome.Epoch || a.Source == affinity.Degraded {
					t.Errorf("big lives at %+v, it was at %+v", a, bigHome)
				}
			})
		})
	}
}

// The store hangs for one node only. Soon afterwards, this node must place new rooms again. It does not wait for the
// other node, which noticed nothing, because a store announces that it lost data.
func TestShortPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pinstore.NewMemory()
		late := &faulty{Store: data}
		f := newFleet(t, late, affinity.Config{}, "a")
		f.store = &faulty{Store: data}
		f.start("b")
		time.Sleep(5 * time.Second)
		late.hangs.Store(true)
		time.Sleep(3 * time.Second)
		if !f.rooms["a"].Stats().StoreDoubt || f.rooms["b"].Stats().StoreDoubt {
			t.Fatal("want the store to be away for a alone")
		}
		late.hangs.Store(false)
		time.Sleep(1500 * time.Millisecond)
		if a := f.resolve("a", "new", 1); a.Source == affinity.Degraded {
			t.Errorf("new rooms still wait: %+v", a)
		}
	})
}

// The store loses all data. Hosted rooms must be pinned again to the nodes where they run, although new rooms would now
// be placed elsewhere.
func TestStoreLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newReplaced()
		f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
		for _, id := range []string{"a", "b", "c"} {
			f.Agent(id).SetLoad(300)
		}
		time.Sleep(5 * time.Second)
		var hosted []*affinity.Hosting
		for _, room := range names(100) {
			hosted = append(hosted, f.host("a", room, 4))
		}
		before := pins(t, store)
		f.start("d") // d owns partitions of rooms that are hosted elsewhere
		store.empty()
		var wait sync.WaitGroup
		for _, id := range f.IDs() { // joins arrive before the nodes detect the loss
			for _, room := range names(100)[:30] {
				wait.Go(func() {
					if id != "d" { // d does not have the rooms in its cache
						f.resolve(id, room, 4)
					}
				})
			}
		}
		wait.Wait()
		time.Sleep(5 * time.Second)
		if n := f.rooms["a"].Stats().Repinned + f.rooms["b"].Stats().Repinned + f.rooms["c"].Stats().Repinned; n == 0 || n > 100 {
			t.Errorf("%d of 100 pins were made again", n)
		}
		after := pins(t, store)
		for _, h := range hosted {
			room := h.Room()
			if lost(h) {
				t.Errorf("%s is lost: %v", room, h.Err())
			}
			if is, was := after[room], before[room]; is.Incarnation != was.Incarnation || is.Epoch <= was.Epoch || is.Epoch != h.Epoch() {
				t.Errorf("%s was at %+v and is at %+v, the host says epoch %d", room, was, is, h.Epoch())
			}
		}
	})
}

// The store loses all data. A room without a host must stay on its node, too. An instance that has the room in its
// cache pins the room to that node again, and not to the node that the hash selects.
func TestStoreLosesRoomWithoutHost(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Second} { // while hosts restore their pins, and later
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newReplaced()
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				owner := f.owner("r")
				other := f.Agent(f.not(string(owner))).Snapshot().Self
				store.Swap(t.Context(), pinstore.Op{
					Partition: f.Agent("a").Partition("r"), Room: "r", TTL: time.Hour,
					// After the loss, the store's clock will be behind this epoch.
					Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: other.ID, Number: other.Incarnation}, Epoch: 1 << 52},
				})
				was := f.resolve("a", "r", 2)
				store.empty()
				time.Sleep(after)
				if is := f.resolve("a", "r", 2); is.Incarnation != was.Incarnation || is.Source != affinity.Override || is.Epoch <= was.Epoch {
					t.Errorf("it was %+v, is %+v; its partition is of %s", was, is, owner)
				}
				if is := f.resolve("b", "r", 2); is.Incarnation != was.Incarnation {
					t.Errorf("b says %+v", is)
				}
			})
		})
	}
}

// The store was away and has lost all data. A node without the room in its cache does not
// claim the room before the host has restored the pin, not even the first node that
// detects that the store is back.
func TestOtherNodes(t *testing.T) {
	for _, away := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := newReplaced()
				store := &faulty{Store: data}
				f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
				// The room was moved away from its owner, so other nodes would guess wrong.
				room := "r"
				owner := string(f.owner(room))
				f.resolve(owner, room, 2)
				home := f.not(owner)
				other := f.not(owner, home)
				if _, err := f.rooms[owner].Move(t.Context(), room, f.Agent(home).Snapshot().Self.ID); err != nil {
					t.Fatal(err)
				}
				hosting := f.hostAt(home, room, 2)

				store.fails.Store(true)
				data.empty()
				for since := time.Now(); time.Since(since) < away+5*time.Second; time.Sleep(7 * time.Millisecond) {
					if time.Since(since) >= away {
						store.fails.Store(false)
					}
					f.resolve(other, room, 2)
				}
				if lost(hosting) {
					t.Errorf("%s claimed it: %v", other, hosting.Err())
				}
				if a := f.resolve(other, room, 2); string(a.Node) != home {
					t.Errorf("%s says %+v", other, a)
				}
			})
		})
	}
}

// Two nodes hosted the same room while the store was away. When the store is back, one of them must lose the room with
// ErrSplit.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		f.WaitAgreed(time.Second)
		room := "r"
		one := string(f.owner(room))
		two := f.not(one)
		store.fails.Store(true)
		h1 := f.hostAt(one, room, 2)
		f.Split([]string{"a"}, []string{"b"})
		time.Sleep(2 * soon) // each node is alone, and owns everything
		h2 := f.hostAt(two, room, 2)
		f.Heal()
		store.fails.Store(false)
		time.Sleep(2 * soon)
		if lost(h1) == lost(h2) {
			t.Fatalf("lost: %v and %v", lost(h1), lost(h2))
		}
		for h, id := range map[*affinity.Hosting]string{h1: one, h2: two} {
			if !lost(h) {
				continue
			}
			var e *affinity.NotOwnerError
			if !errors.As(h.Err(), &e) || !errors.Is(h.Err(), affinity.ErrSplit) || e.Owner.Node == lease.NodeID(id) {
				t.Errorf("%s lost it with %v", id, h.Err())
			}
			if n := f.rooms[id].Stats().Conflicts; n != 1 {
				t.Errorf("%d conflicts counted", n)
			}
		}
	})
}

// After the store has lost its data, its earlier answers prove nothing. If a room was hosted because of such an answer
// and now lives on another node, this is a conflict and not a move.
func TestLossWhileHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		room := "r"
		owner := string(f.owner(room))
		self := f.Agent(f.not(owner)).Snapshot().Self
		lose := func() { // right after the store has answered
			data.empty()
			data.Swap(t.Context(), pinstore.Op{
				Partition: f.Agent(owner).Partition(room), Room: room, TTL: time.Hour,
				Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: self.ID, Number: self.Incarnation}, Epoch: 1 << 52},
			})
		}
		data.Swap(t.Context(), pinstore.Op{
			Partition: f.Agent(owner).Partition(room), Room: room, TTL: time.Hour,
			Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: lease.NodeID(owner), Number: 1}}, // this incarnation has ended
		})
		next := func() { store.afterSwap.Store(&lose) } // for the swap in which Host replaces that pin
		store.afterSwap.Store(&next)
		h := f.hostAt(owner, room, 2)
		time.Sleep(time.Second)
		if !lost(h) || !errors.Is(h.Err(), affinity.ErrSplit) || f.rooms[owner].Stats().Conflicts != 1 {
			t.Errorf("lost: %t, %v; %d conflicts", lost(h), h.Err(), f.rooms[owner].Stats().Conflicts)
		}
	})
}

// A claim without an answer may have taken effect, so Resolve returns the node of the claim instead of the
// owner by hash.
func TestLateClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		owner := f.owner("big")
		f.Agent(string(owner)).SetLoad(790)
		time.Sleep(5 * time.Second)
		store.late.Store(true)
		got := f.resolve("a", "big", 20)
		store.late.Store(false)
		if got.Node == owner || got.Source != affinity.Degraded {
			t.Errorf("answered %+v", got)
		}
		if a := f.resolve("b", "big", 20); a.Node != got.Node || a.Source != affinity.Pinned {
			t.Errorf("it was pinned to %s, by %v; the answer was %s", a.Node, a.Source, got.Node)
		}
	})
}
