package events

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/placement"
)

// What somebody has not come round to shows, whichever way they read; and what
// they wait for does not.
func TestReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		states := chain(t, step{owners: "a"}, step{owners: "b"}, step{owners: "b"}, step{owners: "a"})
		expect := func(what string, want ...ReaderStats) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(append([]ReaderStats{}, want...), feed.ReaderStats()); diff != "" {
				t.Errorf("%s: -want +got\n%s", what, diff)
			}
		}
		expect("nobody")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		hang, waits := make(chan struct{}), feed.Reader("waits")
		go func() {
			for range Watch(ctx, &feed) {
				<-hang
			}
		}()
		for range 2 {
			go func() {
				for range Watch(ctx, &feed) {
					continue
				}
			}()
		}
		batches := Subscribe(ctx, &feed)
		go RunOwned(ctx, &feed, func(ctx context.Context, _ placement.Partition) { <-ctx.Done() })
		feed.Publish(states[0])
		waits.Latest()
		expect("the first state", ReaderStats{"run_owned", 1, 0}, ReaderStats{"subscribe", 1, 1}, ReaderStats{"waits", 1, 0}, ReaderStats{"watch", 3, 0})

		feed.Publish(states[1])
		feed.Publish(states[2]) // no news, but nobody knows before they look
		expect("three states", ReaderStats{"run_owned", 1, 0}, ReaderStats{"subscribe", 1, 3}, ReaderStats{"waits", 1, 2}, ReaderStats{"watch", 3, 2})

		<-batches
		waits.Latest()
		close(hang)
		expect("all have looked", ReaderStats{"run_owned", 1, 0}, ReaderStats{"subscribe", 1, 0}, ReaderStats{"waits", 1, 0}, ReaderStats{"watch", 3, 0})

		late := Subscribe(ctx, &feed)
		expect("somebody has a first batch to receive", ReaderStats{"run_owned", 1, 0}, ReaderStats{"subscribe", 2, 1}, ReaderStats{"waits", 1, 0}, ReaderStats{"watch", 3, 0})
		<-late

		feed.Publish(states[3])
		expect("one more", ReaderStats{"run_owned", 1, 0}, ReaderStats{"subscribe", 2, 1}, ReaderStats{"waits", 1, 1}, ReaderStats{"watch", 3, 0})
		waits.Close()
		waits.Close()
		cancel()
		expect("the end")
		time.Sleep(time.Minute)
	})
}
