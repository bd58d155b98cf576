package affinity_test

import (
	"context"
	"fmt"
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

// A shard of the store is down: the rooms in the other partitions are failed over at once, the
// rest when the shard is back. The connection to the shard was lost, and the hosts of rooms in
// it cannot confirm their pins.
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

// Rooms begin in a shard that hangs, all the time. This node's heartbeats reach the store nevertheless, so that
// the rooms of a dead node in the other shards are failed over.
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

// sorted is a store with an index in the order of the rooms' names.
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

// More rooms than a query of the index returns fit nowhere: the others are failed over
// nevertheless.
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

// hangingCounter does not answer.
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

// Between its death by gossip and in the store, the answer has the last known address of a
// node.
func TestMemberOfGoneNode(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		room := ""
		for _, name := range names(100) {
			if f.resolve("a", name, 2).Node == "c" {
				room = name
			}
		}
		f.Split([]string{"a", "b"}, []string{"c"}) // the store takes c for alive
		time.Sleep(ttl + soon)
		addr := f.Agent("c").Snapshot().Self.Addr
		got := f.resolve("a", room, 2)
		if got.Node != "c" || got.Member == nil || got.Member.Addr != addr || got.Member.State != lease.Left {
			t.Errorf("resolved to %v with the member %+v", got, got.Member)
		}
	})
}

// A node that lives by the store alone is replaced by its next process. The rooms of the former one move,
// although the heartbeat of the others fails at that moment.
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
		f.Start("c") // without rooms, as while a program starts
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
