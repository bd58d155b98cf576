package events_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// TestReaderStats: for each way to read, states that a reader has not read yet count as behind.
func TestReaderStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		states := chain(t, step{owners: "a"}, step{owners: "b"}, step{owners: "b"}, step{owners: "a"})
		expect := func(what string, want ...events.ReaderStats) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(append([]events.ReaderStats{}, want...), feed.ReaderStats()); diff != "" {
				t.Errorf("%s: -want +got\n%s", what, diff)
			}
		}
		expect("no readers")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		hang, waits := make(chan struct{}), feed.Reader("waits")
		go func() {
			for range events.Watch(ctx, &feed) {
				<-hang
			}
		}()
		for range 2 {
			go func() {
				for range events.Watch(ctx, &feed) {
					continue
				}
			}()
		}
		batches := events.Subscribe(ctx, &feed)
		go events.RunOwned(ctx, &feed, func(ctx context.Context, _ placement.Partition) { <-ctx.Done() })
		feed.Publish(states[0])
		waits.Latest()
		expect("the first state",
			events.ReaderStats{"run_owned", 1, 0}, events.ReaderStats{"subscribe", 1, 1}, events.ReaderStats{"waits", 1, 0}, events.ReaderStats{"watch", 3, 0})

		feed.Publish(states[1])
		feed.Publish(states[2]) // nothing has changed, but readers must look to know that
		expect("three states",
			events.ReaderStats{"run_owned", 1, 0}, events.ReaderStats{"subscribe", 1, 3}, events.ReaderStats{"waits", 1, 2}, events.ReaderStats{"watch", 3, 2})

		<-batches
		waits.Latest()
		close(hang)
		expect("all have read",
			events.ReaderStats{"run_owned", 1, 0}, events.ReaderStats{"subscribe", 1, 0}, events.ReaderStats{"waits", 1, 0}, events.ReaderStats{"watch", 3, 0})

		late := events.Subscribe(ctx, &feed)
		expect("a first batch is unread",
			events.ReaderStats{"run_owned", 1, 0}, events.ReaderStats{"subscribe", 2, 1}, events.ReaderStats{"waits", 1, 0}, events.ReaderStats{"watch", 3, 0})
		<-late

		feed.Publish(states[3])
		expect("one more", events.ReaderStats{"run_owned", 1, 0}, events.ReaderStats{"subscribe", 2, 1}, events.ReaderStats{"waits", 1, 1}, events.ReaderStats{"watch", 3, 0})
		waits.Close()
		waits.Close()
		cancel()
		expect("the end")
		time.Sleep(time.Minute)
	})
}
