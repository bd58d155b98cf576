package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A node cannot reach the store for 40 s and misses the release of its room. When it reaches the store again, its
// hosting must end.
func TestReleaseMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		mine := &faulty{Store: data}
		f := newFleet(t, data, affinity.Config{}, "b", "c")
		f.store = mine
		f.start("a")
		f.resolve("b", "r", 2)
		f.move("b", "a")
		h := f.hostAt("a", "r", 2)
		time.Sleep(5 * time.Second)
		mine.fails.Store(true)
		mine.disconnect()
		if err := f.rooms["b"].Release(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		mine.fails.Store(false)
		time.Sleep(20 * time.Second)
		if !lost(h) {
			t.Errorf("the room was released, and its host goes on; its pin: %v", pins(t, data)["r"])
		}
	})
}

// once is a store that calls before and after around the next op of the given kind, and each of them only once.
type once struct {
	pinstore.Store
	is     func(pinstore.Op) bool
	before atomic.Pointer[func()]
	after  atomic.Pointer[func() bool] // called if the op is done; true: the answer is lost
}

func (s *once) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if !s.is(ops[0]) {
		return s.Store.Swap(ctx, ops...)
	}
	if f := s.before.Swap(nil); f != nil {
		(*f)()
	}
	res := s.Store.Swap(ctx, ops...)
	if res[0].Done {
		if f := s.after.Swap(nil); f != nil && (*f)() {
			return []pinstore.Result{{Err: pinstore.ErrStore}}
		}
	}
	return res
}

func reads(op pinstore.Op) bool  { return op.If == (pinstore.Pin{}) && op.Set == (pinstore.Pin{}) }
func claims(op pinstore.Op) bool { return op.If == (pinstore.Pin{}) && op.Set.Number != 0 }
func marks(op pinstore.Op) bool  { return op.Set.Released() }

// A hosting ends while the keeper confirms its pin, and the room gets a new pin that names the same node. The old
// hosting must keep its epoch.
func TestEpochOfEndedHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &once{Store: pinstore.NewMemory(), is: claims}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		time.Sleep(5 * time.Second)
		epoch := h.Epoch()
		claim := pinstore.Op{
			Partition: f.Agent(o).Partition("r"),
			Room:      "r",
			Set:       pinstore.Pin{Incarnation: f.incarnation(o), Size: 2},
			TTL:       time.Hour,
		}
		next := func() {
			_ = h.Release(t.Context())
			time.Sleep(time.Millisecond)
			if !store.Store.Swap(t.Context(), claim)[0].Done {
				t.Error("no next hosting")
			}
		}
		store.before.Store(&next)
		f.rooms[o].Changed("") // like a lost connection, this makes the keeper claim the pin
		time.Sleep(3 * time.Second)
		if store.before.Load() != nil || !lost(h) || h.Epoch() != epoch {
			t.Errorf("claimed %t, lost %t, epoch %d after %d", store.before.Load() == nil, lost(h), h.Epoch(), epoch)
		}
	})
}

// tardy does not answer the deletion of a pin. The test performs the deletion later.
type tardy struct {
	pinstore.Store
	deletions []pinstore.Op
}

func (s *tardy) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if op := ops[0]; len(ops) == 1 && op.Set.Number == 0 && op.If != (pinstore.Pin{}) {
		s.deletions = append(s.deletions, op)
		<-ctx.Done()
		return []pinstore.Result{{Err: pinstore.ErrStore}}
	}
	return s.Store.Swap(ctx, ops...)
}

// A room ends, but Redis deletes its pin only after the node hosts the room again, for example because Redis was
// paused. The new hosting must keep its pin, even if it began while Redis did not answer.
func TestTardyDeletion(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			data := &tardy{Store: pinstore.NewMemory()}
			store := &faulty{Store: data}
			f := newFleet(t, store, affinity.Config{}, "a", "b")
			o := string(f.owner("r"))
			f.resolve(o, "r", 2)
			first := f.hostAt(o, "r", 2)
			epoch := first.Epoch()
			if err := first.Release(t.Context()); err == nil || len(data.deletions) != 1 {
				t.Fatalf("%v, deletions %+v", err, data.deletions)
			}
			store.fails.Store(away)
			second := f.hostAt(o, "r", 2)
			store.fails.Store(false)
			if away {
				time.Sleep(2 * time.Second)
			}
			data.Store.Swap(t.Context(), data.deletions[0])
			if is := pins(t, data.Store)["r"]; is.Incarnation == (lease.Incarnation{}) || second.Epoch() <= epoch || is.Epoch != second.Epoch() {
				t.Errorf("away %t: epoch %d, then %d; its pin: %+v", away, epoch, second.Epoch(), is)
			}
		})
	}
}

// A hosting that began without the store is released. Before the release reads the room's pin, the room gets another
// pin, or this node hosts the room again. The pin must stay.
func TestReleaseUnconfirmed(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			data := pinstore.NewMemory()
			answers := &once{Store: data, is: reads}
			store := &faulty{Store: answers, mute: true}
			f := newFleet(t, store, affinity.Config{}, "a", "b")
			o := string(f.owner("r"))
			store.fails.Store(true)
			first := f.hostAt(o, "r", 2)
			synctest.Wait() // the keeper's call has failed, and the keeper tries again later
			store.fails.Store(false)
			want := error(nil)
			before := func() {
				if again {
					f.hostAt(o, "r", 2)
					return
				}
				elsewhere := pinstore.Pin{Incarnation: f.incarnation(f.not(o)), Size: 2}
				data.Swap(t.Context(), pinstore.Op{Partition: f.Agent(o).Partition("r"), Room: "r", Set: elsewhere, TTL: time.Hour})
				want = affinity.ErrChanged
			}
			answers.before.Store(&before)
			if err := first.Release(t.Context()); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if is := pins(t, data)["r"]; is.Number == 0 {
				t.Errorf("again %t: the pin is gone", again)
			}
		})
	}
}

// Redis loses a pin and the keeper claims it again, but the answer is lost. The room is released at that moment. If the
// pin remains, Release must return ErrChanged.
func TestReleaseAfterLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &once{Store: data, is: claims}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		time.Sleep(5 * time.Second)
		var err error
		lose := func() bool { err = h.Release(t.Context()); return true }
		store.after.Store(&lose)
		data.empty()
		time.Sleep(time.Minute)
		if _, ok := pins(t, data)["r"]; store.after.Load() != nil || !lost(h) || ok != errors.Is(err, affinity.ErrChanged) {
			t.Errorf("released: %v; it has a pin: %t", err, ok)
		}
	})
}

// A room is resolved while its release is under way. The room gets a new pin, which must stay.
func TestResolveDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pinstore.NewMemory()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		time.Sleep(5 * time.Second)
		var a affinity.Assignment
		again := func() { a = f.resolve(o, "r", 2) }
		store.beforeRelease.Store(&again)
		_ = h.Release(t.Context())
		if is := pins(t, data)["r"]; a.Epoch <= h.Epoch() || is.Epoch != a.Epoch {
			t.Errorf("resolved %v after epoch %d; its pin: %v", a, h.Epoch(), is)
		}
	})
}

// A hosting of another room ends, and both rooms share a count of ends. This must not delay a call of Host, and must
// not make the call fail if the store does not answer.
func TestHostBesideRelease(t *testing.T) {
	other := ""
	for i := 0; placement.Of(other, 256) != placement.Of("r", 256); i++ {
		other = fmt.Sprint("other-", i)
	}
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: pinstore.NewMemory()}
			f := newFleet(t, store, affinity.Config{}, "a")
			ends := f.hostAt("a", other, 2)
			time.Sleep(5 * time.Second)
			budget := affinity.Config{}.WithDefaults().Budget
			most := budget * 9 / 10
			store.pause.Store(int64(most))
			if hangs {
				store.pause.Store(0)
				store.stuck.Store(true)
				most = budget
			}
			time.AfterFunc(budget/2, func() { _ = ends.Release(t.Context()) })
			began := time.Now()
			if _, err := f.rooms["a"].Host(t.Context(), "r", affinity.Demand{Size: 2}); err != nil || time.Since(began) > most {
				t.Errorf("the store hangs %t: %v, after %v", hangs, err, time.Since(began))
			}
		})
	}
}

// Redis loses a pin. While the keeper claims it again, the hosting ends and this node hosts the room again with the new
// pin. This pin must stay.
func TestHostAgainDuringRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		late := &tardy{Store: data}
		store := &once{Store: late, is: claims}
		f := newFleet(t, &faulty{Store: store, mute: true}, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		time.Sleep(5 * time.Second)
		var again *affinity.Hosting
		during := func() bool {
			go func() { _ = h.Release(t.Context()) }()
			time.Sleep(time.Millisecond)
			again = f.hostAt(o, "r", 2)
			return false
		}
		store.after.Store(&during)
		data.failOver() // without a notification
		f.rooms[o].Changed("r")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, deletion := range late.deletions {
			data.Swap(t.Context(), deletion)
		}
		if is := pins(t, data)["r"]; lost(again) || is.Number == 0 || is.Epoch != again.Epoch() {
			t.Errorf("lost %t: %v; epoch %d, its pin: %+v", lost(again), again.Err(), again.Epoch(), is)
		}
	})
}

// The store does not answer a release. A lookup on that node returns the valid pin, and a caller can use it
// to move the room.
func TestLookupAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := &tardy{Store: pinstore.NewMemory()}
		f := newFleet(t, data, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		_ = h.Release(t.Context())
		a, err := f.rooms[o].Lookup(t.Context(), "r")
		if err != nil || a.Epoch != h.Epoch() {
			t.Errorf("%+v, %v; want epoch %d", a, err, h.Epoch())
		}
		if moved, err := f.rooms[o].MoveFrom(t.Context(), "r", a.Incarnation, a.Epoch); err != nil || moved.Node == a.Node {
			t.Errorf("moved: %+v, %v", moved, err)
		}
	})
}

// Redis does not answer a release. Then it loses its data or goes back to an earlier pin, and its clock is behind. The
// next hosting of the room begins without Redis, but must still get a greater epoch.
func TestEpochAfterReleaseAndLoss(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			data := newReplaced()
			store := &faulty{Store: &tardy{Store: data}}
			f := newFleet(t, store, affinity.Config{}, "a", "b")
			o := string(f.owner("r"))
			claim := pinstore.Op{
				Partition: f.Agent(o).Partition("r"),
				Room:      "r",
				Set:       pinstore.Pin{Incarnation: f.incarnation(o), Epoch: 1 << 52, Size: 2},
				TTL:       time.Hour,
			}
			data.Swap(t.Context(), claim)
			f.resolve(o, "r", 2)
			first := f.hostAt(o, "r", 2)
			_ = first.Release(t.Context())
			store.fails.Store(true)
			second := f.hostAt(o, "r", 2)
			data.failOver()
			if claim.Set.Epoch = 1; earlier {
				data.Swap(t.Context(), claim)
			}
			store.fails.Store(false)
			time.Sleep(20 * time.Second)
			if second.Epoch() <= first.Epoch() {
				t.Errorf("an earlier pin %t: epoch %d, then %d", earlier, first.Epoch(), second.Epoch())
			}
		})
	}
}

// Node a releases a room, but the answer to the deletion of the pin is lost. Then b hosts the room, and Redis loses its
// data. Node a is the first to learn of the loss. It must not keep the room, as it would if it had still hosted the
// room.
func TestEndedRoomDoesNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		late := &faulty{Store: data, mute: true}
		f := newFleet(t, data, affinity.Config{}, "b", "c")
		f.store = late
		f.start("a")
		f.resolve("b", "r", 2)
		f.move("b", "a")
		h := f.hostAt("a", "r", 2)
		time.Sleep(5 * time.Second)
		late.releasesLate.Store(true)
		nothing := func() {}
		late.beforeRelease.Store(&nothing)
		if err := h.Release(t.Context()); err == nil {
			t.Fatal("the release was answered")
		}
		time.Sleep(3 * time.Second)
		f.resolve("b", "r", 2)
		f.move("b", "b")
		hosted := f.hostAt("b", "r", 2)
		time.Sleep(3 * time.Second)
		data.failOver()
		f.rooms["a"].Changed("")
		a, err := f.rooms["a"].Resolve(t.Context(), "r", affinity.Demand{Size: 2})
		f.rooms["b"].Changed("")
		time.Sleep(20 * time.Second)
		if lost(hosted) {
			t.Errorf("a resolved %v, %v; b has lost the room: %v", a, err, hosted.Err())
		}
	})
}

// A room is released by name while this node begins to host it. Redis does not notify this node of the mark, because
// the node has set the mark itself. The hosting must still end.
func TestReleaseByNameDuringHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &once{Store: pinstore.NewMemory(), is: marks}
		f := newFleet(t, &faulty{Store: store, mute: true}, affinity.Config{}, "a")
		f.resolve("a", "r", 2)
		var h *affinity.Hosting
		during := func() {
			h = f.hostAt("a", "r", 2)
			time.Sleep(50 * time.Millisecond)
		}
		store.before.Store(&during)
		if err := f.rooms["a"].Release(t.Context(), "r"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		wantLost(t, h, affinity.ErrReleased)
	})
}

// Redis loses its data while a Resolve claims a room. Before the Resolve gets its answer, this node hosts the room with
// the claimed pin. The Resolve must not withdraw its claim.
func TestHostDuringTakenBackClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &tardy{Store: pinstore.NewMemory()}
		store := &once{Store: late, is: claims}
		f := newFleet(t, store, affinity.Config{}, "a")
		var h *affinity.Hosting
		during := func() bool {
			f.rooms["a"].Changed("")
			h = f.hostAt("a", "r", 2)
			return false
		}
		store.after.Store(&during)
		_, _ = f.rooms["a"].Resolve(t.Context(), "r", affinity.Demand{Size: 2})
		if len(late.deletions) > 0 || lost(h) || h.Epoch() == 0 {
			t.Errorf("deletions %+v of the pin of a hosting with epoch %d", late.deletions, h.Epoch())
		}
	})
}

// The store does not answer a release, and no node accepts the room. Resolve must return ErrNoCapacity.
func TestResolveAfterReleaseOnFullNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &tardy{Store: pinstore.NewMemory()}, affinity.Config{HardCeiling: 100}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		_ = f.hostAt(o, "r", 2).Release(t.Context())
		f.Agent(f.not(o)).SetLoad(capacity)
		if err := f.Agent(o).Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if a, err := f.rooms[o].Resolve(t.Context(), "r", affinity.Demand{Size: 2}); !errors.Is(err, affinity.ErrNoCapacity) {
			t.Errorf("%v, %v", a, err)
		}
	})
}

// Several callers of Host share an answer of the store. If one of them releases the room before the others begin to
// host it, the others must not use the old pin. That pin may be gone, and another node may claim the room.
func TestReleaseBetweenHosts(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		for _, room := range names(300) {
			var mu sync.Mutex
			hostings := make(map[uint64]*affinity.Hosting)
			var wait sync.WaitGroup
			for range 4 {
				wait.Go(func() {
					h, err := f.rooms["a"].Host(t.Context(), room, affinity.Demand{Size: 2})
					if err != nil {
						t.Error(err)
						return
					}
					epoch := h.Epoch()
					mu.Lock()
					if other := hostings[epoch]; other != nil && other != h {
						t.Errorf("%s: two hostings with epoch %d", room, epoch)
					}
					hostings[epoch] = h
					mu.Unlock()
					if err := h.Release(t.Context()); err != nil && !errors.Is(err, affinity.ErrChanged) {
						t.Error(err)
					}
				})
			}
			wait.Wait()
		}
	})
}

// A room is released or moved away, and returns to its node, usually before the keeper there notices. The old hosting
// must still end, and the new hosting must have a greater epoch.
func TestReleasedAndClaimedAnew(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, f *fleet, home, other string){
		"released": func(t *testing.T, f *fleet, _, other string) {
			if err := f.rooms[other].Release(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			f.resolve(other, "r", 2)
		},
		"moved and back": func(t *testing.T, f *fleet, home, other string) {
			f.move(other, other)
			f.move(other, home)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, "a b c", func(t *testing.T, f *fleet) {
				home := string(f.owner("r"))
				h := f.host("a", "r", 2)
				time.Sleep(time.Second)
				was, other := h.Epoch(), f.not(home)
				leave(t, f, home, other)
				synctest.Wait()
				if a := f.resolve(other, "r", 2); string(a.Node) != home || a.Epoch <= was {
					t.Fatalf("it has not come back: %+v", a)
				}
				time.Sleep(time.Second)
				_, seen := errors.AsType[*affinity.NotOwnerError](h.Err()) // true if the keeper ran between the two moves
				if !lost(h) || !seen && !errors.Is(h.Err(), affinity.ErrReleased) || seen && name == "released" {
					t.Errorf("lost %v: %v", lost(h), h.Err())
				}
				again := f.host(other, "r", 2)
				if again == h || again.Epoch() <= was || lost(again) {
					t.Errorf("hosted again: epoch %d after %d", again.Epoch(), was)
				}
				time.Sleep(time.Minute)
				if lost(again) {
					t.Errorf("lost: %v", again.Err())
				}
			})
		})
	}
}
