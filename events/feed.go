package events

import (
	"slices"
	"sync"

	"github.com/roost-cluster/roost/events/latest"
)

// Feed publishes the successive states of a node. The zero value is ready to use. Only one goroutine may
// publish, but any number of goroutines can read and close.
type Feed struct {
	newest latest.Value[*State]

	mu      sync.Mutex // not locked while readers or the publisher work
	readers map[*Reader]struct{}
	change  *change // the change that a watcher requested last

	runs runs
}

// change is the difference between two states, computed once for all watchers. It does not keep the earlier
// state in memory, only its version.
type change struct {
	from  uint64 // version of the earlier state; 0 = no earlier state, so the batch is full
	to    *State
	once  sync.Once
	batch Batch
}

// Publish makes s the newest state. It makes two small allocations and wakes each waiting watcher (about 60
// ns each). Publish does not wait for watchers. A busy watcher reads s, or a newer state, when it is done.
// Publish states in the order in which [Next] created them. After Close, Publish does nothing.
func (f *Feed) Publish(s *State) { f.newest.Set(s) }

// Close ends the feed. Readers receive the final state and then the end. Close does not release partitions,
// so a node that leaves must first publish a last state that owns nothing. You can call Close more than once.
func (f *Feed) Close() { f.newest.Close() }

// Latest returns the newest state, or nil if there is none yet, and a channel that is closed when a newer
// state is published. A nil channel means that the feed is closed and the state is final. Latest takes no
// lock, and allocates nothing after the first state.
func (f *Feed) Latest() (*State, <-chan struct{}) {
	s, next := f.newest.Get()
	return *s, next
}

// changes returns the difference between two states of the feed, and whether watchers must receive it.
// Watchers always receive the first state, but later only differences with changes.
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
		// Clip the slices, so that a watcher that appends gets a new array.
		b.Released, b.Acquired, b.Moved = slices.Clip(b.Released), slices.Clip(b.Acquired), slices.Clip(b.Moved)
		b.Left, b.Joined, b.Changed = slices.Clip(b.Left), slices.Clip(b.Joined), slices.Clip(b.Changed)
	})
	return c.batch, c.batch.News()
}
