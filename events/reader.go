package events

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Reader is a subscriber's position in a [Feed]. [Watch], [Subscribe] and [RunOwned] each use one. Use a
// Reader directly if your application serves many clients, or waits for other events in the same select:
//
//	r := feed.Reader("clients")
//	defer r.Close()
//	var seen *events.State
//	for {
//		state, next := r.Latest()
//		if state != seen {
//			send(events.Diff(seen, state)) // if it has News
//			seen = state
//		}
//		if next == nil {
//			return // the feed has ended
//		}
//		select {
//		case <-next:
//		case <-quit:
//			return
//		}
//	}
//
// A Reader is not safe for concurrent use.
type Reader struct {
	feed *Feed
	name string
	seen atomic.Uint64 // version of the newest state that the subscriber has reached
	out  chan Batch    // for Subscribe; empty = the subscriber has received every batch
}

// Reader opens a reader. [Feed.ReaderStats] includes the reader until you close it. Choose a name for the
// kind of subscriber instead of the individual subscriber, because each name becomes a time series in the
// metrics.
func (f *Feed) Reader(name string) *Reader { return f.open(&Reader{feed: f, name: name}) }

func (f *Feed) open(r *Reader) *Reader {
	if s, _ := f.Latest(); s != nil {
		r.seen.Store(s.Version - 1) // the reader is not considered behind because of earlier states
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = make(map[*Reader]struct{})
	}
	f.readers[r] = struct{}{}
	return r
}

// Close closes the reader. You can call Close more than once.
func (r *Reader) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

// Latest is like [Feed.Latest], and also records that the reader has reached the returned state.
func (r *Reader) Latest() (*State, <-chan struct{}) {
	s, next := r.feed.Latest()
	r.reached(s)
	return s, next
}

func (r *Reader) reached(s *State) {
	if s != nil {
		r.seen.Store(s.Version)
	}
}

// behind returns how many states were published after the state that r has reached.
func (r *Reader) behind(newest uint64) uint64 {
	if r.out != nil && len(r.out) == 0 {
		return 0
	}
	return newest - min(newest, r.seen.Load())
}

// ReaderStats contains statistics about the open readers with the same name.
type ReaderStats struct {
	Name string `json:"name"`
	Open int    `json:"open"` // number of open readers

	// Behind is the number of states that the slowest reader has not reached yet. Behind is 0 while no state
	// is published. If it remains above 0, a subscriber's handler is blocked.
	Behind uint64 `json:"behind"`
}

// ReaderStats returns statistics about the open readers, sorted by name. It takes O(readers) time and is safe
// for concurrent use.
func (f *Feed) ReaderStats() []ReaderStats {
	var newest uint64
	if s, _ := f.Latest(); s != nil {
		newest = s.Version
	}
	list := []ReaderStats{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		i, ok := slices.BinarySearchFunc(list, r.name, func(of ReaderStats, name string) int { return cmp.Compare(of.Name, name) })
		if !ok {
			list = slices.Insert(list, i, ReaderStats{Name: r.name})
		}
		list[i].Open++
		list[i].Behind = max(list[i].Behind, r.behind(newest))
	}
	return list
}
