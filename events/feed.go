package events

import (
	"slices"
	"sync"

	"github.com/roost-cluster/roost/events/latest"
)

// Feed publishes the successive states of one node. The zero value is ready to
// use. One goroutine publishes; any number of goroutines may read and close.
type Feed struct {
	newest latest.Value[*State]

	mu      sync.Mutex // never held while a reader or publisher works
	readers map[*Reader]struct{}
	change  *change // the one that a watcher took last

	runs runs
}

// change is the difference between two states, computed once for all watchers. It
// does not keep the earlier state in memory.
type change struct {
	from  uint64 // version; 0 = from the beginning
	to    *State
	once  sync.Once
	batch Batch
}

// Publish makes s the newest state. It makes two small allocations, wakes each
// waiting watcher (some 60 ns for each) and waits for none: a busy watcher finds s
// when it looks again. States must be published in the order in which [Next] made
// them. After Close, Publish does nothing.
func (f *Feed) Publish(s *State) { f.newest.Set(s) }

// Close ends the feed: readers receive the final state, then the end. Close
// releases nothing: a node that leaves first publishes a last state that owns
// nothing. Close may be called again.
func (f *Feed) Close() { f.newest.Close() }

// Latest returns the newest state, nil if there is none yet, and a channel that is
// closed when a newer state is published. A nil channel means that the feed is
// closed and the state is final. Latest is lock-free and allocates nothing once a
// state has been published.
func (f *Feed) Latest() (*State, <-chan struct{}) {
	s, next := f.newest.Get()
	return *s, next
}

// changes returns the difference between two states of the feed, and whether it has to
// be sent: a refresh is not sent, a first state always is.
func (f *Feed) changes(old, cur *State) (b Batch, news bool) {
	if cur == old {
		return Batch{}, false
	}
	var from uint64
	if old != nil {
		from = old.Version
	}
	f.mu.Lock()
	if f.change == nil || f.change.from != from || f.change.to != cur {
		f.change = &change{from: from, to: cur}
	}
	c := f.change
	f.mu.Unlock()
	c.once.Do(func() {
		b := &c.batch
		*b = Diff(old, cur)
		// An append by a watcher must make a new array.
		b.Released, b.Acquired, b.Moved = slices.Clip(b.Released), slices.Clip(b.Acquired), slices.Clip(b.Moved)
		b.Left, b.Joined, b.Changed = slices.Clip(b.Left), slices.Clip(b.Joined), slices.Clip(b.Changed)
	})
	return c.batch, c.batch.News()
}
