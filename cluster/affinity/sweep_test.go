package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestDeath(t *testing.T) {
	inFleet(t, "a b c d e", func(t *testing.T, f *fleet) {
		rooms := names(2000)
		hosts := make(map[string]*affinity.Hosting)
		for _, room := range rooms {
			hosts[room] = f.host("a", room, 2)
		}
		before := pins(t, f.store)
		moves := f.published("a") // a has resolved all rooms, so it knows them

		f.start("f") // a node that joins moves nothing
		if after := pins(t, f.store); !maps.Equal(after, before) {
			t.Fatal("rooms moved when a node joined")
		}
		f.crash("c")
		since := time.Now()
		for hasNode(pins(t, f.store), "c") {
			if time.Since(since) > time.Second {
				t.Fatal("a second after the crash, pins name the dead node still")
			}
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(since)
		time.Sleep(soon)
		synctest.Wait()
		after := pins(t, f.store)
		n := f.onlyMovedFromC(before, after)
		t.Logf("%d of %d rooms failed over %v after the crash", n, len(rooms), took)
		for room, m := range moves.once(t, n) {
			if m.From != before[room].Incarnation || m.To != after[room].Incarnation || m.Epoch != after[room].Epoch {
				t.Fatalf("published %+v; it was at %+v and is at %+v", m, before[room], after[room])
			}
		}
		for room, h := range hosts {
			if lost(h) && before[room].Node != "c" {
				t.Fatalf("%s is lost: %v", room, h.Err())
			}
		}
	})
}

// The store does not notify, so a node has to search for the rooms that another node has failed over.
func TestDeathWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		f := newFleet(t, &faulty{Store: store, mute: true}, affinity.Config{}, "a", "b", "c")
		f.resolveAll(100)
		before := pins(t, store)
		moves := f.published("a")
		f.crash("c")
		time.Sleep(time.Minute)
		synctest.Wait()
		published := moves.once(t, f.onlyMovedFromC(before, pins(t, store)))
		if f.rooms["a"].Stats().FailedOver == uint64(len(published)) {
			t.Error("no other node has failed over a room")
		}
	})
}

// The owner of a partition is live, but cannot reach the store. Another node must fail over the rooms.
func TestSecondSweeps(t *testing.T) {
	inFleet(t, "a c", func(t *testing.T, f *fleet) {
		store, cut := f.store, &faulty{Store: f.store}
		f.store = cut
		f.start("b")
		f.resolveAll(100)
		before := pins(t, store)
		cut.fails.Store(true)
		f.crash("c")
		time.Sleep(2 * soon)
		if n := f.onlyMovedFromC(before, pins(t, store)); n == 0 {
			t.Error("no room has moved")
		}
	})
}

// Another node dies while the rooms of a dead node are failed over. The rooms of both nodes must get live nodes.
func TestDeathOfTheNodeThatFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		slow := &faulty{Store: store}
		f := newFleet(t, slow, affinity.Config{}, "a", "b", "c", "d")
		f.resolveAll(1000)
		before := pins(t, store)
		slow.pause.Store(int64(300 * time.Millisecond)) // after every eight ops
		f.crash("c")
		for maps.Equal(before, pins(t, store)) {
			time.Sleep(10 * time.Millisecond)
		}
		f.crash("b")
		slow.pause.Store(0)
		time.Sleep(2 * soon)
		after := pins(t, store)
		if len(after) != len(before) || hasNode(after, "c") || hasNode(after, "b") {
			t.Fatalf("%d of %d rooms are pinned; to the dead: %v, %v", len(after), len(before), hasNode(after, "c"), hasNode(after, "b"))
		}
		for room, was := range before {
			if is := after[room]; was.Node != "b" && was.Node != "c" && is != was {
				t.Fatalf("%s moved from %+v to %+v", room, was, is)
			}
		}
	})
}

// A whole cluster restarts. The pins of its earlier incarnations are invalid, and no node has them in its
// cache.
func TestAllRestarted(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		f.resolveAll(300)
		before := pins(t, f.store)
		for _, id := range []string{"a", "b", "c"} {
			f.crash(id)
		}
		time.Sleep(time.Minute)
		f.start("a", "b", "d")
		time.Sleep(soon)
		for room, is := range pins(t, f.store) {
			if is.Incarnation == before[room].Incarnation || is.Node == "c" {
				t.Fatalf("%s is pinned to the earlier incarnation %v", room, is.Incarnation)
			}
		}
		if n := len(pins(t, f.store)); n != len(before) {
			t.Errorf("%d rooms of %d", n, len(before))
		}
	})
}

// Until a room is failed over, a join may return the dead node or a live node, but must not be Degraded. After the
// lease, it must return the live node.
func TestVoidPin(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		a := f.resolve("a", "r", 2)
		f.crash(string(a.Node))
		other := f.IDs()[0]
		for len(f.Agent(other).Members()) > 1 {
			time.Sleep(10 * time.Millisecond)
		}
		got := f.resolve(other, "r", 2)
		if got.Source == affinity.Degraded || got.Node != lease.NodeID(other) && got.Incarnation != a.Incarnation {
			t.Errorf("resolved to %+v", got)
		}
		time.Sleep(ttl)
		if got := f.resolve(other, "r", 2); got.Node != lease.NodeID(other) || got.Epoch <= a.Epoch {
			t.Errorf("after the lease it lives at %+v", got)
		}
	})
}

// A node restarts after its lease has expired, but before its heartbeat in the store expires. The earlier incarnation
// must count as dead.
func TestRestartBeforeHeartbeatExpires(t *testing.T) {
	for i := range time.Duration(5) {
		inFleet(t, "a b c", func(t *testing.T, f *fleet) {
			for _, room := range names(100) {
				f.resolve("a", room, 2)
				if _, err := f.rooms["a"].Move(t.Context(), room, "c"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5*time.Second + i*270*time.Millisecond)
			earlier := pins(t, f.store)["r-0"].Incarnation
			f.crash("c")
			for len(f.Agent("a").Members()) > 2 || len(f.Agent("b").Members()) > 2 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(300 * time.Millisecond)
			f.start("c")
			time.Sleep(time.Minute)
			n := 0
			for _, p := range pins(t, f.store) {
				if p.Incarnation == earlier {
					n++
				}
			}
			if n > 0 {
				t.Fatalf("%d rooms are pinned to the earlier incarnation of c", n)
			}
		})
	}
}

// Gossip is cut, but the store is not. Each side considers the other side dead, but leaves the other side's rooms where
// they are.
func TestSplit(t *testing.T) {
	inFleet(t, "a b c d", func(t *testing.T, f *fleet) {
		rooms := names(400)
		cutOff := func(when, at string, want ...lease.NodeID) {
			t.Helper()
			if got := f.rooms[at].Stats().CutOff; !slices.Equal(got, want) {
				t.Errorf("%s: %q are cut off for %s, want %q", when, got, at, want)
			}
		}
		var hosted []*affinity.Hosting
		for _, room := range rooms {
			hosted = append(hosted, f.host("a", room, 2))
		}
		before := pins(t, f.store)
		f.Split([]string{"a", "b", "c"}, []string{"d"})
		time.Sleep(time.Minute)
		if n := len(f.Agent("d").Members()); n != 1 {
			t.Fatalf("d sees %d members", n)
		}
		for _, room := range rooms {
			one, two := f.resolve("a", room, 2), f.resolve("d", room, 2)
			if one.Incarnation != two.Incarnation || one.Incarnation != before[room].Incarnation {
				t.Fatalf("%s: one side says %v, the other %v; it was at %v", room, one.Incarnation, two.Incarnation, before[room].Incarnation)
			}
			if _, err := f.rooms["d"].Host(t.Context(), room, affinity.Demand{}); one.Node != "d" && !errors.Is(err, affinity.ErrSplit) {
				t.Fatalf("d hosts %s of %s: %v", room, one.Node, err)
			}
		}
		for _, room := range []string{"new-1", "new-2", "new-3"} {
			if one, two := f.resolve("d", room, 2), f.resolve("a", room, 2); one.Node != two.Node {
				t.Errorf("%s: d says %s, a says %s", room, one.Node, two.Node)
			}
		}
		cutOff("split", "a", "d")
		cutOff("split", "d", "a", "b", "c")
		f.crash("b") // a node dies during the split
		time.Sleep(2 * soon)
		cutOff("b has died", "d", "a", "c")
		during := pins(t, f.store)
		for room, was := range before {
			if is := during[room]; (was.Node == "b") != (is != was) || is.Node == "b" {
				t.Fatalf("%s: from %+v to %+v, after b died", room, was, is)
			}
		}
		f.Heal()
		time.Sleep(2 * time.Minute)
		cutOff("healed", "a")
		cutOff("healed", "d")
		if after := pins(t, f.store); !maps.Equal(after, during) {
			t.Error("pins changed when the split healed")
		}
		for _, h := range hosted {
			if lost(h) && before[h.Room()].Node != "b" {
				t.Errorf("%s is lost: %v", h.Room(), h.Err())
			}
		}
	})
}

// After Close and Leave, other nodes must take the rooms without waiting until a lease expires.
func TestClose(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		var hosted []*affinity.Hosting
		for _, room := range names(200) {
			if h := f.host("a", room, 2); f.resolve("a", room, 2).Node == "c" {
				hosted = append(hosted, h)
			}
		}
		before := pins(t, f.store)
		since := time.Now()
		if err := f.rooms["c"].Close(); err != nil {
			t.Fatal(err)
		}
		for _, h := range hosted {
			wantLost(t, h, affinity.ErrClosed)
		}
		if err := f.rooms["c"].Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if _, err := f.rooms["c"].Host(t.Context(), "r", affinity.Demand{}); !errors.Is(err, affinity.ErrClosed) {
			t.Errorf("hosting after Close: %v", err)
		}
		if _, err := f.rooms["c"].Resolve(t.Context(), "new", affinity.Demand{}); !errors.Is(err, affinity.ErrClosed) {
			t.Errorf("resolving after Close: %v", err)
		}
		f.Leave("c")
		for hasNode(pins(t, f.store), "c") {
			if time.Since(since) > 5*time.Second {
				t.Fatal("its rooms are where they were")
			}
			time.Sleep(10 * time.Millisecond)
		}
		f.onlyMovedFromC(before, pins(t, f.store))
		t.Logf("failed over %v after Close", time.Since(since))
	})
}

// If an agent ends before its resolver, the hostings of the resolver must end, too.
func TestAgentEndsFirst(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 2)
		home := string(f.resolve("a", "r", 2).Node)
		f.Crash(home)
		time.Sleep(time.Second)
		wantLost(t, h, affinity.ErrFenced)
		if _, err := f.rooms[home].Host(t.Context(), "r", affinity.Demand{}); !errors.Is(err, affinity.ErrFenced) {
			t.Errorf("hosting without an agent: %v", err)
		}
	})
}

// counter reports the same number of participants for each room.
type counter int

func (c counter) Counts(_ context.Context, rooms []string) ([]int, error) {
	counts := make([]int, len(rooms))
	for i := range counts {
		counts[i] = int(c)
	}
	return counts, nil
}

// When a room is failed over, its cost is computed from its counted participants, if they are more than the
// participants in its pin.
func TestSizeOfDeadNodesRooms(t *testing.T) {
	for counted, want := range map[counter]pinstore.Pin{
		0:  {Incarnation: lease.Incarnation{Node: "b"}, Size: 8},  // the counts of a crashed node have expired
		20: {Incarnation: lease.Incarnation{Node: "a"}, Size: 20}, // 380 units, for which b has no headroom
	} {
		synctest.Test(t, func(t *testing.T) {
			store := pinstore.NewMemory()
			f := newFleet(t, store, affinity.Config{Counter: counted}, "a", "b", "c")
			f.Agent("b").SetLoad(500)
			time.Sleep(5 * time.Second)
			room := ""
			for _, name := range names(100) {
				if owners := f.Agent("a").Owners(name, 2); owners[0].ID == "c" && owners[1].ID == "b" {
					room = name
				}
			}
			if a := f.resolve("a", room, 8); a.Node != "c" {
				t.Fatalf("%q lives on %+v", room, a)
			}
			f.crash("c")
			time.Sleep(2 * soon)
			if pin := pins(t, store)[room]; pin.Size != want.Size || pin.Node != want.Node {
				t.Errorf("with %d counted, %s is pinned to %+v, want %+v", counted, room, pin, want)
			}
		})
	}
}

// A shard of the store is down. Rooms in the other shards must be failed over without delay, and the remaining rooms
// when the shard is back. The connection to the shard was lost, so hosts of rooms in it cannot confirm their pins, but
// must keep the rooms.
func TestShardDown(t *testing.T) {
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprint("hung ", hung), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := pinstore.NewMemory()
				shards := &faulty{Store: store, hung: hung}
				f := newFleet(t, shards, affinity.Config{}, "a", "b", "c")
				var kept []*affinity.Hosting
				for _, room := range names(600) {
					if h := f.host("a", room, 2); pins(t, store)[room].Node != "c" {
						kept = append(kept, h)
					}
				}
				left := func() (up, down int) {
					for room, pin := range pins(t, store) {
						switch {
						case pin.Node != "c":
						case onShard(placement.Of(room, 64)):
							down++
						default:
							up++
						}
					}
					return up, down
				}
				shards.shardDown.Store(true)
				shards.disconnect()
				f.crash("c")
				time.Sleep(time.Minute)
				if up, down := left(); up > 0 || down == 0 {
					t.Errorf("%d rooms of the dead node are left in the shards that answer, %d in the shard that is down", up, down)
				}
				shards.shardDown.Store(false)
				time.Sleep(time.Minute)
				if up, down := left(); up+down > 0 {
					t.Error("the shard is back, and pins name the dead node still")
				}
				for _, h := range kept {
					if err := h.Err(); err != nil {
						t.Errorf("%s: %v", h.Room(), err)
					}
				}
			})
		})
	}
}

// New rooms keep starting in a shard that hangs. This node's heartbeats still reach the store, so the rooms
// of a dead node in the other shards are failed over.
func TestShardHangsWhileRoomsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		shards := &faulty{Store: store, hung: true}
		f := newFleet(t, shards, affinity.Config{}, "a", "b", "c")
		for _, room := range names(300) {
			f.host("a", room, 2)
		}
		shards.shardDown.Store(true)
		shards.disconnect()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, id := range []string{"a", "b"} {
			r := f.rooms[id]
			go func() {
				for i := 0; ctx.Err() == nil; i++ {
					_, _ = r.Host(ctx, fmt.Sprint("new-", id, i), affinity.Demand{Size: 2})
					time.Sleep(50 * time.Millisecond)
				}
			}()
		}
		f.crash("c")
		time.Sleep(time.Minute)
		left := 0
		for room, pin := range pins(t, store) {
			if pin.Node == "c" && !onShard(placement.Of(room, 64)) {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d rooms of the dead node are left in the shards that answer", left)
		}
	})
}

// sorted is a store whose index is sorted by the names of the rooms.
type sorted struct{ pinstore.Store }

func (s sorted) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	all, err := s.Store.Index(ctx, parts, want, 1<<20)
	slices.SortFunc(all, func(a, b pinstore.Entry) int { return strings.Compare(a.Room, b.Room) })
	return all[:min(limit, len(all))], err
}

// Large rooms fit on no node, and there are more of them than a query of the index returns. The small rooms must still
// be failed over.
func TestHomelessDoNotHideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const big, small = 4500, 300
		store := pinstore.NewMemory()
		f := newFleet(t, sorted{store}, affinity.Config{HardCeiling: 100}, "a", "c")
		gone := lease.Incarnation{Node: "d", Number: 1}
		var ops []pinstore.Op
		for i := range big + small {
			room := fmt.Sprintf("%05d", i)
			op := pinstore.Op{Partition: placement.Of(room, 64), Room: room, Set: pinstore.Pin{Incarnation: gone, Size: 100}, TTL: time.Hour}
			if i >= big {
				op.Set.Size = 2
			}
			ops = append(ops, op)
		}
		for _, res := range store.Swap(t.Context(), ops...) {
			if res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		f.crash("c")
		time.Sleep(time.Minute)
		left := 0
		for _, pin := range pins(t, store) {
			if pin.Node == "d" && pin.Size == 2 {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d small rooms have no home", left, small)
		}
	})
}

// hangingCounter does not answer before its context ends.
type hangingCounter struct{ calls *atomic.Int64 }

func (c hangingCounter) Counts(ctx context.Context, _ []string) ([]int, error) {
	c.calls.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A Counter that hangs delays a sweep once, no matter how many rooms there are.
func TestHangingCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		count := hangingCounter{new(atomic.Int64)}
		f := newFleet(t, store, affinity.Config{Counter: count}, "a", "c")
		f.resolveAll(6000)
		f.crash("c")
		since := time.Now()
		for hasNode(pins(t, store), "c") && time.Since(since) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(since); took > 4*time.Second || count.calls.Load() != 1 {
			t.Errorf("failing over took %v, with %d calls of the Counter", took, count.calls.Load())
		}
	})
}

// While a node is dead in gossip, but not yet in the store, the answer must have the node's last known address.
func TestMemberOfGoneNode(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		room := ""
		for _, name := range names(100) {
			if f.resolve("a", name, 2).Node == "c" {
				room = name
			}
		}
		f.Split([]string{"a", "b"}, []string{"c"}) // the store considers c alive
		time.Sleep(ttl + soon)
		addr := f.Agent("c").Snapshot().Self.Addr
		got := f.resolve("a", room, 2)
		if got.Node != "c" || got.Member == nil || got.Member.Addr != addr || got.Member.State != lease.Left {
			t.Errorf("resolved to %v with the member %+v", got, got.Member)
		}
	})
}

// A node that is alive only in the store is replaced by its next process. The rooms of the old process must move,
// although the heartbeats of the other nodes fail at that moment.
func TestDiedAsOneHeartbeatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		f.store = data
		f.start("c")
		for _, room := range names(60) {
			f.resolve("a", room, 2)
		}
		former := f.Agent("c").Snapshot().Self.Incarnation
		count := func() (n int) {
			for _, p := range pins(t, data) {
				if p.Node == "c" && p.Number == former {
					n++
				}
			}
			return n
		}
		f.Split([]string{"c"}, []string{"a", "b"})
		time.Sleep(15 * time.Second) // c is cut off
		if count() == 0 {
			t.Fatal("c has no room")
		}
		f.rooms["c"].Kill()
		delete(f.rooms, "c")
		f.Crash("c")
		f.Heal()
		f.Start("c") // without a Resolver, like a program that is still starting
		for range 3000 {
			time.Sleep(time.Millisecond)
			if m, ok := f.Agent("a").Snapshot().Member("c"); ok && m.Incarnation != former {
				break
			}
		}
		store.fails.Store(true)
		time.Sleep(250 * time.Millisecond)
		store.fails.Store(false)
		time.Sleep(time.Minute)
		if n := count(); n > 0 {
			t.Errorf("%d rooms are pinned to the former process", n)
		}
	})
}

// Nodes crash one after another, until only one node is left. After each crash, the rooms of the crashed node must move
// as soon as the crash is confirmed.
func TestCrashesDownToOne(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		for _, room := range names(30) {
			f.host("a", room, 2)
		}
		before := 0
		for _, id := range []string{"c", "b"} {
			f.crash(id)
			time.Sleep(2 * time.Second)
			for _, room := range names(30) {
				if a := f.resolve("a", room, 2); string(a.Node) == id {
					t.Fatalf("2 s after the crash of %s, %s is pinned to it", id, room)
				}
			}
			rooms := 0
			for _, r := range f.rooms {
				rooms += int(r.Stats().FailedOver)
			}
			if rooms <= before {
				t.Errorf("after the crash of %s, %d rooms have failed over, %d before", id, rooms, before)
			}
			before = int(f.rooms["a"].Stats().FailedOver) // the count of the next node to crash will be missing
			time.Sleep(10 * time.Second)
		}
	})
}

// A node that was paused for longer than its lease must give up its rooms immediately, even if the store hangs and
// calls of the store may take long.
func TestFenceWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{Budget: 30 * time.Second}, "a", "b", "c")
		h := f.host("a", "r", 2)
		node := string(f.resolve("a", "r", 2).Node)
		store.hangs.Store(true)
		time.Sleep(2 * time.Second)
		f.Pause(node)
		time.Sleep(20 * time.Second)
		f.Resume(node)
		select {
		case <-h.Lost():
		case <-time.After(time.Second):
			t.Error("a second after the pause the room is still hosted")
		}
		store.hangs.Store(false)
	})
}
