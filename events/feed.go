package events

import (
	"sync"
	"sync/atomic"
)

// Feed publishes the successive states of one node. The zero value is ready to
// use. One goroutine publishes; any number may read and close.
type Feed struct {
	cell atomic.Pointer[cell]

	mu      sync.Mutex // never held while a reader or publisher works
	readers map[*Reader]struct{}
}

// cell is one publication. Its channel is closed by whoever replaces it, so a
// reader that holds a cell cannot miss the next one.
type cell struct {
	state *State
	next  chan struct{} // nil: the feed is closed
}

// Publish makes s the newest state. It makes two small allocations, wakes each
// watcher that is waiting (some 60 ns for each) and waits for none: a watcher
// that is busy finds s when it looks again. States must be published in the
// order in which [Next] made them. After Close, Publish does nothing.
func (f *Feed) Publish(s *State) {
	f.replace(func(*cell) *cell { return &cell{state: s, next: make(chan struct{})} })
}

// Close ends the feed: readers get to the final state, then to the end. It
// releases nothing by itself; a node that goes publishes a last state that owns
// nothing first. Close may be called again.
func (f *Feed) Close() {
	f.replace(func(c *cell) *cell { return &cell{state: c.state} })
}

// Latest returns the newest state, nil if there is none yet, and a channel that is
// closed when there is a newer one. A nil channel means that the state is the last
// one for ever. It is lock-free and allocates nothing once a state has been
// published.
func (f *Feed) Latest() (*State, <-chan struct{}) {
	c := f.load()
	return c.state, c.next
}

func (f *Feed) load() *cell {
	for {
		if c := f.cell.Load(); c != nil {
			return c
		}
		f.cell.CompareAndSwap(nil, &cell{next: make(chan struct{})})
	}
}

// replace swaps the cell, unless the feed is closed, and wakes whoever waits.
func (f *Feed) replace(by func(*cell) *cell) {
	for {
		c := f.load()
		if c.next == nil {
			return
		}
		if f.cell.CompareAndSwap(c, by(c)) {
			close(c.next)
			return
		}
	}
}
