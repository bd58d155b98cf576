package events_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/events"
)

type watcher func(context.Context, *events.Feed) iter.Seq[events.Batch]

// watchers are the two ways to read batches. Both give the same guarantees.
var watchers = map[string]watcher{
	"Watch": events.Watch,
	"Subscribe": func(ctx context.Context, feed *events.Feed) iter.Seq[events.Batch] {
		return func(yield func(events.Batch) bool) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for b := range events.Subscribe(ctx, feed) {
				if !yield(b) {
					return
				}
			}
		}
	},
}

// bubble is a test of one kind of watcher in a synctest bubble.
type bubble struct {
	*testing.T
	watch watcher
}

func inBubble(t *testing.T, test func(t bubble)) {
	t.Helper()
	for name, watch := range watchers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(bubble{t, watch}) })
		})
	}
}

// reader reads batches from a watcher in the background, and appends them to log. Its fields may be read after
// synctest.Wait.
type reader struct {
	log   []string
	ended bool
}

func read(seq iter.Seq[events.Batch], pause time.Duration) *reader {
	r := new(reader)
	go func() {
		for b := range seq {
			r.log = append(r.log, text(b))
			time.Sleep(pause)
		}
		r.ended = true
	}()
	return r
}

func (r *reader) expect(tb testing.TB, ended bool, want ...string) {
	tb.Helper()
	synctest.Wait()
	if !slices.Equal(r.log, want) || r.ended != ended {
		tb.Fatalf("received %q, ended %v\nwant %q, ended %v", r.log, r.ended, want, ended)
	}
}

func TestWatchSendsOnlyChanges(t *testing.T) {
	inBubble(t, func(t bubble) {
		var feed events.Feed
		early := read(t.watch(t.Context(), &feed), 0)
		early.expect(t, false)
		states := chain(t,
			step{},
			step{owners: "aab", members: "a1 b1"},
			step{owners: "aab", members: "a1 b1"},
			step{owners: "aba", members: "a1 b1"})
		feed.Publish(states[0])
		early.expect(t, false, "") // the first batch arrives even if the node owns nothing
		feed.Publish(states[1])
		early.expect(t, false, "", "+0@2 +1@2 0:>a 1:>a 2:>b joined:a joined:b")
		feed.Publish(states[2])
		synctest.Wait()
		feed.Publish(states[2])
		early.expect(t, false, "", "+0@2 +1@2 0:>a 1:>a 2:>b joined:a joined:b")
		late := read(t.watch(t.Context(), &feed), 0)
		late.expect(t, false, "+0@2 +1@2 joined:a joined:b")
		feed.Publish(states[3])
		late.expect(t, false, "+0@2 +1@2 joined:a joined:b", "-1@2 +2@4 1:a>b 2:b>a")
		feed.Close()
		late.expect(t, true, "+0@2 +1@2 joined:a joined:b", "-1@2 +2@4 1:a>b 2:b>a")
		early.expect(t, true, "", "+0@2 +1@2 0:>a 1:>a 2:>b joined:a joined:b", "-1@2 +2@4 1:a>b 2:b>a")
	})
}

// TestSubscribeMergesUnread: unread changes are merged instead of queued, and disappear if they are undone.
func TestSubscribeMergesUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		batches := events.Subscribe(t.Context(), &feed)
		publish := func(s *events.State) *events.State {
			feed.Publish(s)
			synctest.Wait()
			return s
		}
		receive := func(want string) {
			t.Helper()
			synctest.Wait()
			got := "nothing"
			select {
			case b := <-batches:
				got = text(b)
			default:
			}
			if got != want {
				t.Fatalf("received %q, want %q", got, want)
			}
		}
		s := publish(step{owners: "abb"}.next(t, nil))
		s = publish(step{owners: "aab"}.next(t, s))
		receive("+0@1 +1@2") // there is one first batch, with the newest state
		receive("nothing")
		s = publish(step{owners: "aaa"}.next(t, s))
		s = publish(step{owners: "aab"}.next(t, s))
		receive("nothing") // gained and lost again
		s = publish(step{owners: "bab"}.next(t, s))
		receive("-0@1 0:a>b")
		s = publish(step{owners: "bbb"}.next(t, s))
		s = publish(step{owners: "bab"}.next(t, s))
		receive("-1@2 +1@7") // lost and regained
		publish(step{owners: "aab"}.next(t, s))
		feed.Close()
		receive("+0@8 0:b>a") // the last batch can be read even after the feed has ended
		if _, open := <-batches; open {
			t.Error("the channel stays open")
		}
	})
}

func TestWatcherEnds(t *testing.T) {
	state := step{owners: "a"}.next(t, nil)
	tests := map[string]struct {
		late bool // the watcher starts after all changes
		act  func(feed *events.Feed, cancel func())
		want []string
	}{
		"cancelled before the start": {true, func(feed *events.Feed, cancel func()) { feed.Publish(state); cancel() }, nil},
		"cancelled before any state": {false, func(_ *events.Feed, cancel func()) { cancel() }, nil},
		"cancelled while idle": {
			false, func(feed *events.Feed, cancel func()) { feed.Publish(state); synctest.Wait(); cancel() },
			[]string{"+0@1"},
		},
		"closed before the start":  {true, func(feed *events.Feed, _ func()) { feed.Publish(state); feed.Close() }, []string{"+0@1"}},
		"closed without any state": {false, func(feed *events.Feed, _ func()) { feed.Close() }, nil},
		"closed while idle":        {false, func(feed *events.Feed, _ func()) { feed.Publish(state); synctest.Wait(); feed.Close() }, []string{"+0@1"}},
		"closed at once after a change": {false, func(feed *events.Feed, _ func()) {
			feed.Publish(state)
			synctest.Wait()
			feed.Publish(step{owners: "b"}.next(t, state))
			feed.Close()
		}, []string{"+0@1", "-0@1 0:a>b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t bubble) {
				var feed events.Feed
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.late {
					tc.act(&feed, cancel)
				}
				r := read(t.watch(ctx, &feed), 0)
				synctest.Wait()
				if !tc.late {
					tc.act(&feed, cancel)
				}
				r.expect(t, true, tc.want...)
			})
		})
	}
}

// TestWatchBreakAndRangeAgain: each range statement starts with a new first batch, and a break leaves no goroutine
// behind.
func TestWatchBreakAndRangeAgain(t *testing.T) {
	inBubble(t, func(t bubble) {
		var feed events.Feed
		feed.Publish(step{owners: "aa"}.next(t, nil))
		seq := t.watch(t.Context(), &feed)
		for range 3 {
			for b := range seq {
				if got := text(b); got != "+0@1 +1@1" {
					t.Errorf("first batch %q", got)
				}
				break
			}
		}
	})
}

// TestUnsubscribeWithUnreadBatch: canceling the context withdraws an unread batch and ends the goroutine, even if
// nobody reads the channel. Otherwise, synctest would report the goroutine.
func TestUnsubscribeWithUnreadBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		ctx, cancel := context.WithCancel(t.Context())
		batches := events.Subscribe(ctx, &feed)
		feed.Publish(step{owners: "a"}.next(t, nil))
		synctest.Wait()
		if len(batches) != 1 {
			t.Fatalf("%d batches wait, want 1", len(batches))
		}
		cancel()
		synctest.Wait()
		if b, open := <-batches; open {
			t.Errorf("received %q after the end", text(b))
		}
	})
}
