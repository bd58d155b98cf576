package events_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// TestSharedChangesAreThoseOfDiff: a shared batch equals the result of Diff, whatever other watchers read.
func TestSharedChangesAreThoseOfDiff(t *testing.T) {
	tb := t
	rapid.Check(t, func(t *rapid.T) {
		states := append([]*events.State{nil}, chain(tb, drawSteps(t)...)...)
		var feed events.Feed
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			to := rapid.IntRange(0, len(states)-1).Draw(t, "to")
			from := rapid.IntRange(0, to).Draw(t, "from")
			got, news := feed.Changes(states[from], states[to])
			if from == to {
				if news {
					t.Fatalf("from %d to %d is news", from, to)
				}
				continue
			}
			want := events.Diff(states[from], states[to])
			if diff := cmp.Diff(want, got); diff != "" || news != want.News() {
				t.Fatalf("from %d to %d (-want +got):\n%s", from, to, diff)
			}
		}
	})
}

// TestWatchersShareBatches: watchers that are at the same state get the same batch, which is computed once.
func TestWatchersShareBatches(t *testing.T) {
	states := chain(t, step{owners: "aaab"}, step{owners: "bbbb"}) // an array of three moves has room for a fourth
	var feed events.Feed
	feed.Publish(states[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	moves, more := make([][]events.Move, 8), make([][]events.Move, 8)
	var full, all sync.WaitGroup
	full.Add(len(moves))
	for i := range moves {
		all.Go(func() {
			for b := range events.Watch(ctx, &feed) {
				if b.Full {
					full.Done()
					continue
				}
				moves[i] = b.Moved
				more[i] = append(b.Moved, events.Move{Partition: placement.Partition(i)})
				return
			}
		})
	}
	full.Wait()
	feed.Publish(states[1])
	all.Wait()
	for i := range moves {
		if !events.Same(moves[i], moves[0]) {
			t.Errorf("watcher %d has a batch of its own", i)
		}
		if more[i][3].Partition != placement.Partition(i) {
			t.Errorf("watcher %d finds what watcher %d has appended", i, more[i][3].Partition)
		}
	}
}
