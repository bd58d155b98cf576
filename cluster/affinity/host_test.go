package affinity_test

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b", "c")
		a := f.resolve("a", "r", 10)
		for _, id := range f.IDs() {
			h, err := f.rooms[id].Host(t.Context(), "r", affinity.Demand{Size: 10})
			if id == string(a.Node) {
				if err != nil || h.Epoch() != a.Epoch || lost(h) {
					t.Fatalf("%s cannot host its own room: %v", id, err)
				}
				again, err := f.rooms[id].Host(t.Context(), "r", affinity.Demand{Size: 11})
				if again != h || err != nil {
					t.Errorf("hosting twice: %p and %p, %v", h, again, err)
				}
				continue
			}
			var elsewhere *affinity.NotOwnerError
			if !errors.As(err, &elsewhere) || elsewhere.Owner.Incarnation != a.Incarnation ||
				!errors.Is(err, affinity.ErrNotOwner) || errors.Is(err, affinity.ErrSplit) {
				t.Errorf("%s hosts a room of %s: %v", id, a.Node, err)
			}
		}
		time.Sleep(10 * time.Second)
		for _, m := range f.Agent("a").Members() {
			if want := map[bool]int64{true: affinity.FullMesh(11)}[m.ID == a.Node]; m.Load != want {
				t.Errorf("%s reports %d units, want %d", m.ID, m.Load, want)
			}
		}
		h, _ := f.rooms[string(a.Node)].Host(t.Context(), "r", affinity.Demand{})
		if err := h.Release(t.Context()); err != nil || !lost(h) || !errors.Is(h.Err(), affinity.ErrReleased) {
			t.Errorf("released: %v, lost %v, %v", err, lost(h), h.Err())
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("its pin: %v", err)
		}
	})
}

// The pin of a hosted room must not expire, but the pin of an abandoned room must. If a room is hosted shortly before
// its pin expires, the room keeps the pin, although the host has not refreshed it yet.
func TestPinTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{PinTTL: 3 * time.Minute}, "a", "b")
		meeting := f.host("a", "meeting", 3)
		abandoned := f.resolve("a", "abandoned", 3)
		late := f.resolve("a", "late", 3)
		lapsing := f.host("b", "lapsing", 3)
		lapsing.LapseAfter(3 * time.Minute)
		time.Sleep(165 * time.Second)
		if a := f.resolve("b", "abandoned", 3); a.Epoch != abandoned.Epoch {
			t.Errorf("pinned again within the TTL: %+v", a)
		}
		hostings := map[*affinity.Hosting]uint64{meeting: meeting.Epoch(), f.host("b", "late", 3): late.Epoch}
		time.Sleep(8 * time.Minute)
		for h, was := range hostings {
			if a, err := f.rooms["b"].Lookup(t.Context(), h.Room()); err != nil || lost(h) || a.Epoch != was || h.Epoch() != was {
				t.Errorf("%s: lost: %v; it was at epoch %d, is at %+v, %v", h.Room(), h.Err(), was, a, err)
			}
		}
		if _, err := f.rooms["b"].Lookup(t.Context(), "abandoned"); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("the abandoned room is pinned still: %v", err)
		}
		if !errors.Is(lapsing.Err(), affinity.ErrLapsed) {
			t.Errorf("the untouched hosting: %v", lapsing.Err())
		}
	})
}

// The pin of a room that has grown gets the new size without waiting for the refresh.
func TestGrowthIsWritten(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 2)
		for size := 3; size <= 40; size++ {
			h.Touch(size)
			time.Sleep(3 * time.Second)
		}
		if pin := pins(t, f.store)["r"]; pin.Size < 20 || pin.Epoch != h.Epoch() {
			t.Errorf("40 participants, its pin says %d", pin.Size)
		}
	})
}

// A participant returns after a hosting has ended, but before its pin is deleted. The deletion takes effect
// immediately, or a second after its caller has given up.
func TestHostDuringRelease(t *testing.T) {
	for name, late := range map[string]bool{"answered": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: pinstore.NewMemory(), mute: true} // a server does not notify a connection of the changes that it made itself
				f := newFleet(t, store, affinity.Config{}, "a", "b")
				h := f.host("a", "r", 2)
				home := f.rooms[string(f.resolve("a", "r", 2).Node)]
				var again *affinity.Hosting
				host := func() {
					var err error
					if again, err = home.Host(t.Context(), "r", affinity.Demand{Size: 1}); err != nil {
						t.Error(err)
					}
					if !late {
						time.Sleep(50 * time.Millisecond) // the keeper reads the pin before it is deleted
					}
				}
				store.releasesLate.Store(late)
				store.beforeRelease.Store(&host)
				if err := h.Release(t.Context()); (err != nil) != late {
					t.Fatalf("released: %v", err)
				}
				time.Sleep(10 * time.Second)
				pin := pins(t, store)["r"]
				if again == h || lost(again) || pin.Epoch == 0 || late && pin.Epoch <= h.Epoch() || pin.Epoch != again.Epoch() {
					t.Errorf("hosted again: the pin is %+v, the hosting has epoch %d, %v", pin, again.Epoch(), again.Err())
				}
			})
		})
	}
}

// A host learns that its room was moved, although the pin cache has no space for the room.
func TestMovedFromFullCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{MaxKnown: 16}, "a", "b")
		h := f.host("a", "r", 2)
		home := f.resolve("a", "r", 2).Node
		for _, room := range names(200) {
			f.resolve(string(home), room, 2)
		}
		if n := f.rooms[string(home)].Stats().Known; n > 16 {
			t.Errorf("%d rooms are remembered, at most 16 should be", n)
		}
		time.Sleep(soon) // the host has written its pin
		to := f.not(string(home))
		f.move(to, to)
		time.Sleep(time.Second)
		if !lost(h) || !errors.Is(h.Err(), affinity.ErrNotOwner) || errors.Is(h.Err(), affinity.ErrSplit) {
			t.Errorf("lost %v, %v", lost(h), h.Err())
		}
	})
}

// After the store has answered Host, but before the hosting starts, another node moves the room. This node learns of
// the move from a notification, and the hosting must end.
func TestMovedDuringHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		home := f.resolve("a", "r", 2).Node
		to := f.not(string(home))
		time.Sleep(time.Second)
		move := func() {
			if _, err := f.rooms[to].Move(t.Context(), "r", lease.NodeID(to)); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		store.afterSwap.Store(&move)
		h := f.hostAt(string(home), "r", 2)
		synctest.Wait()
		wantLost(t, h, affinity.ErrNotOwner)
	})
}

// A hosting ends while the keeper restores its pin. The restored pin must be deleted again.
func TestReleaseDuringRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		h := f.host("a", "r", 2)
		time.Sleep(time.Second)
		release := func() { _ = h.Release(t.Context()) }
		store.afterSwap.Store(&release)
		data.empty()
		time.Sleep(time.Second)
		if pin, ok := pins(t, data)["r"]; ok || !lost(h) {
			t.Errorf("lost %v; the pin is %+v", lost(h), pin)
		}
	})
}

// A paused node loses its hostings, even if no other node has taken the rooms and nobody calls Host.
func TestPauseAlone(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 2)
		f.Pause("a")
		time.Sleep(2 * soon)
		f.Resume("a")
		time.Sleep(soon)
		wantLost(t, h, affinity.ErrFenced)
	})
}

// Any node can end a room.
func TestReleaseElsewhere(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 2)
		home := string(f.resolve("a", "r", 2).Node)
		var feeds []*published
		for _, id := range f.IDs() {
			feeds = append(feeds, f.published(id))
		}
		if err := f.rooms[f.not(home)].Release(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantLost(t, h, affinity.ErrReleased)
		for _, id := range f.IDs() {
			if _, err := f.rooms[id].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
				t.Errorf("%s finds a pin: %v", id, err)
			}
			if list, err := f.rooms[id].Rooms(t.Context(), "", 10); err != nil || len(list) != 0 {
				t.Errorf("%s lists %v, %v", id, list, err)
			}
			if err := f.rooms[id].Release(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) {
				t.Errorf("%s releases it again: %v", id, err)
			}
		}
		if a := f.resolve("b", "r", 2); a.Source != affinity.Hash || a.Epoch <= h.Epoch() {
			t.Errorf("then it begins anew at %+v", a)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, batches := range feeds {
			if len(*batches) > 0 {
				t.Errorf("%v were published; the room ended and began", *batches)
			}
		}
	})
}

// A node is live again after a pause, but its keeper goroutine is still waiting for the store. Host must not return a
// hosting from before the pause.
func TestFencedHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		slow := &faulty{Store: store, mute: true}
		f.store = slow
		f.start("c")
		f.resolve("a", "r", 2)
		f.move("a", "c")
		h := f.hostAt("c", "r", 2)
		f.resolve("c", "known", 2)
		f.Pause("c")
		time.Sleep(2 * soon)
		slow.stuck.Store(true)
		f.rooms["c"].Changed("known") // work for its keeper
		time.Sleep(10 * time.Millisecond)
		f.Resume("c")
		for !f.Agent("c").Live() {
			time.Sleep(time.Millisecond)
		}
		if got, err := f.rooms["c"].Host(t.Context(), "r", affinity.Demand{Size: 2}); got == h || !lost(h) {
			t.Errorf("it returns a hosting that it lost: %v, lost %v", err, lost(h))
		}
	})
}

// A node that was paused for longer than its lease has lost its rooms, and cannot take
// them back.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		f := newFleet(t, store, affinity.Config{PinTTL: 5 * soon}, "a", "b", "c") // its refresh is overdue after the pause
		var hosted []*affinity.Hosting
		for _, room := range names(200) {
			if h := f.host("a", room, 2); f.resolve("a", room, 2).Node == "c" {
				hosted = append(hosted, h)
			}
		}
		before := pins(t, store)
		f.Pause("c")
		time.Sleep(2 * soon)
		if _, err := f.rooms["c"].Host(t.Context(), "r-0", affinity.Demand{}); !errors.Is(err, affinity.ErrFenced) {
			t.Errorf("hosting with a lease that ran out: %v", err)
		}
		during := pins(t, store)
		f.onlyMovedFromC(before, during)
		f.Resume("c")
		time.Sleep(2 * soon)
		for _, h := range hosted {
			if !lost(h) || !errors.Is(h.Err(), affinity.ErrFenced) && !errors.Is(h.Err(), affinity.ErrNotOwner) {
				t.Fatalf("%s: lost %v, %v", h.Room(), lost(h), h.Err())
			}
		}
		if after := pins(t, store); !maps.Equal(after, during) {
			t.Error("pins changed when the node came back")
		}
		if _, err := f.rooms["c"].Host(t.Context(), hosted[0].Room(), affinity.Demand{}); !errors.Is(err, affinity.ErrNotOwner) {
			t.Errorf("hosting what it lost: %v", err)
		}
		h := f.host("c", "new", 2)
		if lost(h) {
			t.Error("it cannot host again")
		}
	})
}

// A node's load has one writer. Otherwise the load of the application replaces the computed load until a room
// begins or ends.
func TestLoadHasOneWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b")
		f.host("a", "room", 10)
		host := f.Agent(string(f.resolve("a", "room", 10).Node))
		if err := host.SetLoad(capacity); !errors.Is(err, cluster.ErrLoadComputed) {
			t.Errorf("SetLoad: %v, want ErrLoadComputed", err)
		}
		time.Sleep(5 * time.Second)
		if load := host.Snapshot().Self.Load; load != 90 {
			t.Errorf("a node with a room of 90 units reports %d", load)
		}
		if _, err := affinity.Start(host, pinstore.NewMemory(), affinity.Config{ReportLoad: true}); !errors.Is(err, cluster.ErrLoadComputed) {
			t.Errorf("a second resolver reports the load of the same agent, too: %v", err)
		}
		if err := f.rooms[string(host.Snapshot().Self.ID)].Close(); err != nil {
			t.Error(err)
		}
		if err := host.SetLoad(7); err != nil {
			t.Errorf("SetLoad after Close: %v", err)
		}
	})
}

func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true}, "a", "b")
		h := f.host("a", "grows", 10)
		f.host("a", "other", 3)
		node := f.resolve("a", "grows", 10).Node
		var latest atomic.Pointer[affinity.Pressure]
		pressures := f.rooms[string(node)].Pressures(t.Context())
		go func() {
			for p := range pressures {
				latest.Store(&p)
			}
		}()
		time.Sleep(5 * time.Second)
		now := latest.Load()
		if now.Over || now.Node != node {
			t.Errorf("at 90 units of %d: %+v", capacity, *now)
		}
		h.Touch(30)
		time.Sleep(5 * time.Second)
		now = latest.Load()
		if !now.Over || now.Load < 870 || now.Ceiling != 800 || now.Capacity != capacity ||
			len(now.Heaviest) == 0 || now.Heaviest[0] != (affinity.RoomLoad{Room: "grows", Size: 30, Units: 870}) {
			t.Errorf("at 870 units and more: %+v", *now)
		}
		if a := f.resolve("a", "grows", 30); a.Node != node || lost(h) {
			t.Errorf("growth moved the room to %s", a.Node)
		}
		relays, err := f.rooms["a"].Relays(t.Context(), "grows", affinity.Demand{Size: 5}, 5)
		if err != nil || len(relays) != 1 || relays[0].ID == node {
			t.Errorf("the next-best nodes are %v, %v", relays, err)
		}
		h.Touch(5)
		time.Sleep(5 * time.Second)
		if now = latest.Load(); now.Over {
			t.Errorf("at 20 units and a few: %+v", *now)
		}
	})
}

// An isolated node owns no partitions, but keeps its rooms while its heartbeats reach the store.
func TestRoomsOfAnIsolatedNode(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		c := f.StartWith("c", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.MinMembers = 2 }))
		f.resolver("c")
		f.WaitAgreed(3 * time.Second)
		time.Sleep(5 * time.Second)
		var hosted []*affinity.Hosting
		for _, room := range names(200) {
			hosted = append(hosted, f.host("a", room, 2))
		}
		before := pins(t, f.store)
		f.Split([]string{"c"}, []string{"a", "b"})
		time.Sleep(90 * time.Second)
		if c.Snapshot().Phase != cluster.PhaseIsolated || len(c.Owned()) > 0 {
			t.Fatalf("c is %v and owns %d partitions", c.Snapshot().Phase, len(c.Owned()))
		}
		if during := pins(t, f.store); !maps.Equal(before, during) {
			t.Error("pins changed while c was isolated")
		}
		f.Heal()
		time.Sleep(time.Minute)
		rooms := 0
		for _, h := range hosted {
			if before[h.Room()].Node == "c" {
				rooms++
			}
			if lost(h) {
				t.Errorf("%s of %s is lost: %v", h.Room(), before[h.Room()].Node, h.Err())
			}
		}
		if rooms == 0 || c.Snapshot().Phase != cluster.PhaseActive {
			t.Errorf("%d rooms on c, which is %v", rooms, c.Snapshot().Phase)
		}
	})
}

// Two participants with different demands arrive at the same time. Both demands must count.
func TestDemandsOfConcurrentHosts(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: newReplaced()}
			f := newFleet(t, store, affinity.Config{}, "a", "b")
			o := string(f.owner("r"))
			f.resolve(o, "r", 2)
			time.Sleep(time.Second)
			store.pause.Store(int64(10 * time.Millisecond))
			hosted := make(chan *affinity.Hosting, 2)
			for _, size := range []int{2, 50} {
				go func() {
					h, err := f.rooms[o].Host(t.Context(), "r", affinity.Demand{Size: size})
					if err != nil {
						t.Error(err)
					}
					hosted <- h
				}()
			}
			if one, other := <-hosted, <-hosted; one != other {
				t.Fatal("one room, and two hostings")
			}
			if rooms, _ := f.rooms[o].Hosted(); rooms[0].Size != 50 {
				t.Errorf("the room has size %d, want 50", rooms[0].Size)
			}
		})
	}
}
