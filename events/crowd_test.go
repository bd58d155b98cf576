package events_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/roost-cluster/roost/events"
)

// storm publishes n random states, calls pause after each, closes the feed, and returns the states. The last state
// differs from all others.
func storm(t *testing.T, feed *events.Feed, rng *rand.Rand, n int, pause func()) []*events.State {
	t.Helper()
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	var states []*events.State
	var s *events.State
	for i := range n {
		next := step{
			owners:  pick("aabbcc", "aaabbb", "bbbccc", "ababab", "cccaaa", "aaaaaa"),
			members: pick("a1 b1 c1", "a1 b1", "a1 b2 c1"),
			fenced:  rng.IntN(8) == 0,
		}
		if i == n-1 {
			next = step{owners: "dddaad", members: "a1 d1"}
		}
		s = next.next(t, s)
		states = append(states, s)
		feed.Publish(s)
		pause()
	}
	feed.Close()
	return states
}

// TestCrowdEndsRight: 1,000 watchers of different speeds follow many changes. All of them must reach the last state,
// and they must not slow down the publisher.
func TestCrowdEndsRight(t *testing.T) {
	const crowd, states = 1000, 200
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		received := make([][]events.Batch, crowd)
		for i := range crowd {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			watch := watchers[[]string{"Watch", "Subscribe"}[i%2]]
			go func() {
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond) // some start late
				for b := range watch(t.Context(), &feed) {
					received[i] = append(received[i], b)
					time.Sleep(time.Duration(rng.IntN(i+1)) * time.Millisecond)
				}
			}()
		}
		start := time.Now()
		all := storm(t, &feed, rand.New(rand.NewPCG(2, 0)), states, func() { time.Sleep(10 * time.Millisecond) })
		if took := time.Since(start); took != states*10*time.Millisecond {
			t.Errorf("the publisher was delayed: %v", took)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		fewest, most := states, 0
		for i := range received {
			var r replica
			for _, b := range received[i] {
				r.apply(t, b, all)
			}
			r.check(t, all[len(all)-1])
			fewest, most = min(fewest, len(received[i])), max(most, len(received[i]))
		}
		if most < states/2 || fewest > states/20 {
			t.Errorf("received %d to %d batches: the watchers' speeds do not differ enough", fewest, most)
		}
	})
}

// TestCrowdOnThreads tests a similar crowd on real threads. Half of the watchers leave early, and a few never read. No
// goroutine may remain, and no watcher may wait for another.
func TestCrowdOnThreads(t *testing.T) {
	const crowd, states = 1000, 50
	var feed events.Feed
	var wg sync.WaitGroup
	var final atomic.Int64
	for i := range crowd {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if i%50 == 0 {
			events.Subscribe(ctx, &feed) // never read; goleak checks that its goroutine ends
			continue
		}
		unread := states
		if i%2 == 0 {
			unread = 1 + rng.IntN(10)
		}
		wg.Go(func() {
			var last uint64
			for b := range events.Subscribe(ctx, &feed) {
				if last = b.Version; unread == 0 {
					cancel() // then read until the channel is closed
				}
				unread--
				for range rng.IntN(100) {
					runtime.Gosched()
				}
			}
			if last == states {
				final.Add(1)
			}
		})
	}
	storm(t, &feed, rand.New(rand.NewPCG(4, 0)), states, func() { runtime.Gosched() })
	wg.Wait()
	if n := final.Load(); n < crowd/2 {
		t.Errorf("%d reached the final state; want at least the %d that stayed", n, crowd/2)
	}
}

// TestUnreadSubscriptionIsBounded: a subscription that nobody reads keeps a few states in memory, but not all of them.
func TestUnreadSubscriptionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		batches := events.Subscribe(t.Context(), &feed)
		var s *events.State
		var refs []weak.Pointer[events.State]
		for i := range 1000 {
			s = step{owners: []string{"aab", "bab"}[i%2]}.next(t, s)
			refs = append(refs, weak.Make(s))
			feed.Publish(s)
			synctest.Wait() // the subscription handles each of them
		}
		alive := len(refs)
		for range 100 { // stacks are sometimes scanned conservatively
			runtime.GC()
			alive = 0
			for _, ref := range refs {
				if ref.Value() != nil {
					alive++
				}
			}
			if alive <= 3 {
				break
			}
		}
		if alive > 3 {
			t.Errorf("%d states are alive, want at most 3: delivered, offered, published", alive)
		}
		feed.Close()
		if n := len(batches); n > 1 {
			t.Errorf("%d batches wait, want at most 1", n)
		}
	})
}
