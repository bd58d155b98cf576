package events

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func superseded(next <-chan struct{}) bool {
	select {
	case <-next:
		return true
	default:
		return false
	}
}

func TestFeed(t *testing.T) {
	states := chain(t, step{owners: "a"}, step{owners: "b"}, step{owners: "c"})
	var feed Feed // the zero value must do
	expect := func(what string, state *State, open bool) <-chan struct{} {
		t.Helper()
		s, next := feed.Latest()
		if s != state || (next != nil) != open || superseded(next) {
			t.Fatalf("%s: Latest = %p, %v (closed: %v); want state %p, a channel that is open: %v",
				what, s, next, superseded(next), state, open)
		}
		return next
	}
	empty := expect("at first", nil, true)
	if again := expect("at first, once more", nil, true); again != empty {
		t.Fatal("two readers wait on different channels: one of them would wait for ever")
	}
	feed.Publish(states[0])
	if !superseded(empty) {
		t.Fatal("the first state wakes nobody")
	}
	one := expect("published", states[0], true)
	feed.Publish(states[1])
	if !superseded(one) {
		t.Fatal("the second state wakes nobody")
	}
	two := expect("published again", states[1], true)
	feed.Close()
	if !superseded(two) {
		t.Fatal("Close wakes nobody")
	}
	expect("closed", states[1], false)
	feed.Close()
	feed.Publish(states[2])
	expect("closed, published", states[1], false)

	var closed Feed
	closed.Close()
	if s, next := closed.Latest(); s != nil || next != nil {
		t.Errorf("closed without a state: Latest = %v, %v; want nil, nil", s, next)
	}
}

// Nobody is there to receive, so a Publish that waited would hang.
func TestPublishWaitsForNobody(t *testing.T) { // S3.15
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		for range 50 {
			Subscribe(t.Context(), &feed) // never read
		}
		held := make(chan struct{})
		for range 50 {
			go func() {
				for range Watch(t.Context(), &feed) {
					<-held // a handler that hangs
				}
			}()
		}
		var s *State
		for range 1000 {
			s = step{owners: "ab"}.next(t, s)
			feed.Publish(s)
		}
		synctest.Wait()
		feed.Close()
		close(held)
	})
}

func TestFeedReadersSeeVersionsRise(t *testing.T) {
	const last = 2000
	var feed Feed
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var version uint64
			for {
				s, next := feed.Latest()
				if s != nil {
					if s.Version < version {
						t.Errorf("version %d after %d", s.Version, version)
					}
					version = s.Version
				}
				if next == nil {
					break
				}
				if version%2 == 0 { // one half of the reads wait, the other spins
					<-next
				}
			}
			if version != last {
				t.Errorf("ends at version %d, want %d", version, last)
			}
		})
	}
	var s *State
	for range last {
		s = step{owners: "a"}.next(t, s)
		feed.Publish(s)
	}
	feed.Close()
	wg.Wait()
}

// Close may come from anywhere, at any time; then nothing may undo it.
func TestCloseWhilePublishing(t *testing.T) {
	s := step{}.next(t, nil)
	type round struct {
		Feed
		ready atomic.Int32
	}
	rounds := make([]round, 20_000)
	// Both arrive at each round together, as nearly as can be.
	together := func(act func(*Feed)) {
		for i := range rounds {
			for rounds[i].ready.Add(1); rounds[i].ready.Load() < 2; {
				runtime.Gosched()
			}
			act(&rounds[i].Feed)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { together((*Feed).Close) })
	wg.Go(func() {
		together(func(f *Feed) {
			f.Publish(s)
			f.Close()
		})
	})
	wg.Wait()
	for i := range rounds {
		if _, next := rounds[i].Latest(); next != nil {
			t.Fatalf("feed %d is open", i)
		}
	}
}
