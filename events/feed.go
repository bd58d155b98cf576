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

	mu      sync.Mutex // not held while a reader or publisher works
	readers map[*Reader]struct{}
	change  *change // the change that a watcher took last

	runs runs
}

// change is the difference between two states, computed once for all watchers. It does not keep the earlier
// state in memory, only its version.
type change struct {
	from  uint64 // version of the earlier state; 0 = none, the batch is full
	to    *State
	once  sync.Once
	batch Batch
}

// Publish makes s the newest state. It makes two small allocations and wakes each waiting watcher (about 60
// ns each). It does not wait for watchers: a busy watcher finds s when it is done. Publish states in the
// order in which [Next] made them. After Close, Publish does nothing.
func (f *Feed) Publish(s *State) { f.newest.Set(s) }

// Close ends the feed. Readers receive the final state and then the end. Close does not release partitions,
// so a node that leaves must publish a last state that owns nothing before. Close may be called again.
func (f *Feed) Close() { f.newest.Close() }

// Latest returns the newest state, or nil if there is none yet, and a channel that is closed when a newer
// state is published. A nil channel means that the feed is closed and the state is final. Latest takes no
// lock, and allocates nothing after the first state.
func (f *Feed) Latest() (*State, <-chan struct{}) {
	s, next := f.newest.Get()
	return *s, next
}

// changes returns the difference between two states of the feed, and whether it has to be sent. A refresh is
// not sent, but a first state always is.
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
		// Clip the slices, so that an append by a watcher makes a new array.
		b.Released, b.Acquired, b.Moved = slices.Clip(b.Released), slices.Clip(b.Acquired), slices.Clip(b.Moved)
		b.Left, b.Joined, b.Changed = slices.Clip(b.Left), slices.Clip(b.Joined), slices.Clip(b.Changed)
	})
	return c.batch, c.batch.News()
}
