package affinity

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// move is a move of a room from a to b.
func move(room string, epoch uint64) Moved {
	incarnation := func(node lease.NodeID) lease.Incarnation { return lease.Incarnation{Node: node, Number: 1} }
	return Moved{Room: room, From: incarnation("a"), To: incarnation("b"), Epoch: epoch}
}

// textOf lists the rooms of a batch with their epochs, and adds "resync" if Resync is set.
func textOf(b MovedBatch) string {
	var parts []string
	for _, m := range b.Moved {
		parts = append(parts, fmt.Sprint(m.Room, m.Epoch))
	}
	if b.Resync {
		parts = append(parts, "resync")
	}
	return strings.Join(parts, ", ")
}

// readMoves ranges over batches in a goroutine, and sends each batch to the returned channel.
func readMoves(batches iter.Seq[MovedBatch]) <-chan MovedBatch {
	out := make(chan MovedBatch)
	go func() {
		defer close(out)
		for b := range batches {
			out <- b
		}
	}()
	return out
}

func TestDirective(t *testing.T) {
	m := Moved{
		Room:   "r",
		From:   lease.Incarnation{Node: "node-a", Number: 1},
		To:     lease.Incarnation{Node: "node-b", Number: 2},
		Reason: "node-a died",
		Epoch:  7,
		Addr:   "b.example:443",
	}
	b, err := json.Marshal(m.Directive())
	want := `{"room":"r","to":"node-b","addr":"b.example:443","reason":"node-a died","epoch":7}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v\nwant %s", b, err, want)
	}
}

func TestMovedJSON(t *testing.T) {
	m := Moved{
		Room:      "r",
		Partition: 7,
		From:      lease.Incarnation{Node: "node-a", Number: 1<<63 + 1},
		To:        lease.Incarnation{Node: "node-b", Number: 2},
		Reason:    "node-a died",
		Epoch:     1 << 52,
		Addr:      "b.example:443",
	}
	b, err := json.Marshal(MovedBatch{Moved: []Moved{m}})
	want := `{"moved":[{"room":"r","partition":7,"from":"node-a","from_incarnation":"9223372036854775809",` +
		`"to":"node-b","to_incarnation":"2","reason":"node-a died","epoch":4503599627370496,"addr":"b.example:443"}],"resync":false}`
	if err != nil || string(b) != want {
		t.Fatalf("got %s, %v\nwant %s", b, err, want)
	}
	var back MovedBatch
	if err := json.Unmarshal(b, &back); err != nil || len(back.Moved) != 1 || back.Moved[0] != m {
		t.Errorf("got %+v, %v back, want %+v", back, err, m)
	}
	if err := json.Unmarshal([]byte(`{"room":7}`), &m); err == nil {
		t.Error("a room that is a number is accepted")
	}
}

func TestMovesBeginWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed moves
		feed.publish([]Moved{move("before", 1)})
		seq := feed.watch(t.Context())
		feed.publish([]Moved{move("between", 2)})
		batches := readMoves(seq)
		if got := textOf(<-batches); got != "between2" {
			t.Errorf("first batch %q, want the move between call and loop alone", got)
		}
		synctest.Wait()
		feed.publish([]Moved{move("after", 3)})
		if got := textOf(<-batches); got != "after3" {
			t.Errorf("second batch %q", got)
		}
		feed.close()
	})
}

func TestMovesPublishWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed moves
		held := make(chan struct{})
		for range 20 {
			feed.watch(t.Context()) // never ranged over
			go func() {
				for range feed.watch(t.Context()) {
					<-held // a handler that hangs
				}
			}()
		}
		quick := readMoves(feed.watch(t.Context()))
		synctest.Wait()
		for i := range 1000 {
			m := move("r", uint64(i))
			feed.publish([]Moved{m})
			if b := <-quick; len(b.Moved) != 1 || b.Moved[0] != m {
				t.Fatalf("a quick reader gets %q, want %+v", textOf(b), m)
			}
		}
		feed.close()
		close(held)
	})
}

func TestMovesBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed moves
		seq := feed.watch(t.Context())
		lists := make([]Moved, maxPending)
		for i := range lists {
			lists[i] = Moved{Room: fmt.Sprintf("r%06d", i), Epoch: 1}
		}
		feed.publish(lists)
		feed.publish(lists[:10]) // they merge with the pending moves, so they still fit

		batches := readMoves(seq)
		if b := <-batches; len(b.Moved) != maxPending || b.Resync {
			t.Fatalf("%d rooms, resync %v; want all %d", len(b.Moved), b.Resync, maxPending)
		}
		synctest.Wait() // the reader waits for more
		feed.publish([]Moved{move("x", 1)})
		synctest.Wait() // the reader is busy with this batch
		feed.publish(lists)
		feed.publish([]Moved{move("one-too-many", 1)})
		feed.publish(lists)
		for s := range feed.subs {
			if len(s.pending) > 0 {
				t.Errorf("%d rooms are kept for a reader that has to resync", len(s.pending))
			}
		}
		if b := <-batches; textOf(b) != "x1" {
			t.Fatalf("got %.80q", textOf(b))
		}
		if b := <-batches; textOf(b) != "resync" || b.Moved == nil {
			t.Fatalf("got %.80q, want resync with an empty list", textOf(b))
		}
		feed.publish([]Moved{move("y", 1)})
		if b := <-batches; textOf(b) != "y1" {
			t.Fatalf("after resync: got %.80q", textOf(b))
		}
		feed.close()
	})
}

func TestMovesEnd(t *testing.T) {
	drain := func(seq iter.Seq[MovedBatch]) (got []string) {
		for b := range seq {
			got = append(got, textOf(b))
		}
		return got
	}
	for name, want := range map[string][]string{"close": {"r1"}, "context": nil} { // pending moves that still arrive
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var feed moves
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := readMoves(feed.watch(ctx))
				synctest.Wait()
				seq := feed.watch(ctx)
				feed.publish([]Moved{move("r", 1)})
				<-waiting
				synctest.Wait()
				if name == "context" {
					cancel()
				} else {
					feed.close()
					feed.close()
					feed.publish([]Moved{move("late", 2)})
				}
				if b, more := <-waiting; more {
					t.Errorf("a waiting reader gets %q", textOf(b))
				}
				synctest.Wait()
				if got := drain(seq); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				got := drain(feed.watch(ctx))
				synctest.Wait()
				if got != nil || len(feed.subs) != 0 {
					t.Errorf("afterwards: %q, %d subscriptions", got, len(feed.subs))
				}
			})
		})
	}
	t.Run("leave the loop", func(t *testing.T) {
		var feed moves
		seq := feed.watch(t.Context())
		feed.publish([]Moved{move("r", 1)})
		for range seq {
			break
		}
		feed.publish([]Moved{move("r", 2)})
		if got := drain(seq); got != nil || len(feed.subs) != 0 {
			t.Errorf("the second loop gets %q, %d subscriptions", got, len(feed.subs))
		}
	})
}

func TestMovesNeedNoGoroutine(t *testing.T) {
	var feed moves
	before := runtime.NumGoroutine()
	for range 100 {
		feed.watch(t.Context())
	}
	if after := runtime.NumGoroutine(); after > before+10 { // the runtime starts and stops goroutines of its own
		t.Errorf("%d goroutines for 100 subscriptions", after-before)
	}
}

// The reference model keeps all moves since a reader took its last batch, and combines the moves of each room.
func TestMovesLikeReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var feed moves
		readers := make([]*mover, 3)
		logs := make([][]Moved, len(readers))
		for i := range readers {
			readers[i] = feed.subscribe("")
		}
		incarnation := rapid.Custom(func(t *rapid.T) lease.Incarnation {
			return lease.Incarnation{
				Node:   lease.NodeID(rapid.StringMatching(`[ab]`).Draw(t, "node")),
				Number: rapid.Uint64Range(1, 2).Draw(t, "incarnation"),
			}
		})
		anyMove := rapid.Custom(func(t *rapid.T) Moved {
			return Moved{
				Room: rapid.StringMatching(`[r-t]`).Draw(t, "room"), From: incarnation.Draw(t, "from"), To: incarnation.Draw(t, "to"),
				Epoch: rapid.Uint64Range(1, 5).Draw(t, "epoch"), Reason: rapid.StringN(0, 3, -1).Draw(t, "reason"),
			}
		})
		take := func(i int) {
			want := make(map[string]Moved)
			for _, room := range []string{"r", "s", "t"} {
				of := slices.DeleteFunc(slices.Clone(logs[i]), func(m Moved) bool { return m.Room != room })
				if len(of) == 0 {
					continue
				}
				slices.SortStableFunc(of[1:], func(a, b Moved) int { return int(a.Epoch) - int(b.Epoch) })
				last := of[len(of)-1]
				if last.Epoch < of[0].Epoch {
					last = of[0]
				}
				last.From = of[0].From
				want[room] = last
			}
			b, open := feed.take(readers[i])
			if !open || b.Resync || len(b.Moved) != len(want) {
				t.Fatalf("got %+v, open %v; want %v", b, open, want)
			}
			for k, room := range slices.Sorted(maps.Keys(want)) {
				if b.Moved[k] != want[room] {
					t.Fatalf("got %+v, want %+v", b.Moved[k], want[room])
				}
			}
			logs[i] = nil
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if i := rapid.IntRange(-3, len(readers)-1).Draw(t, "reader"); i >= 0 {
				take(i)
				continue
			}
			list := rapid.SliceOfN(anyMove, 0, 4).Draw(t, "published")
			for i := range logs {
				logs[i] = append(logs[i], list...)
			}
			feed.publish(list)
			clear(list) // the feed must not keep the list
		}
		for i := range readers {
			take(i)
		}
	})
}

func TestMovesConcurrently(t *testing.T) {
	const publishers, rooms, last = 4, 5, 200
	var feed moves
	var readers, writers sync.WaitGroup
	for i := range 6 {
		seq := feed.watch(t.Context())
		readers.Go(func() {
			epochs := make(map[string]uint64)
			for b := range seq {
				for _, m := range b.Moved {
					if m.Epoch <= epochs[m.Room] {
						t.Errorf("%s: epoch %d after %d", m.Room, m.Epoch, epochs[m.Room])
					}
					epochs[m.Room] = m.Epoch
				}
				if i%2 == 0 {
					runtime.Gosched()
				}
			}
			if len(epochs) != publishers*rooms {
				t.Errorf("a reader knows %d rooms, want %d", len(epochs), publishers*rooms)
			}
			for room, epoch := range epochs {
				if epoch != last {
					t.Errorf("%s: a reader ends at epoch %d, want %d", room, epoch, last)
				}
			}
		})
	}
	for p := range publishers {
		writers.Go(func() {
			for epoch := uint64(1); epoch <= last; epoch++ {
				var list []Moved
				for r := range rooms {
					list = append(list, Moved{Room: fmt.Sprintf("%d-%d", p, r), Epoch: epoch})
				}
				passing := feed.watch(t.Context())
				feed.publish(list)
				for range passing { // a reader that leaves immediately
					break
				}
			}
		})
	}
	writers.Wait()
	feed.close()
	readers.Wait()
}

func BenchmarkMovesPublish(b *testing.B) {
	list := make([]Moved, 5000)
	for i := range list {
		list[i] = Moved{Room: fmt.Sprintf("room-%06d", i), Epoch: 1}
	}
	var feed moves
	s := feed.subscribe("")
	b.ReportAllocs()
	for b.Loop() {
		feed.publish(list)
		feed.take(s)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(list)), "ns/room")
}
