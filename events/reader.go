package events

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Reader is one subscriber's place in a [Feed]. [Watch], [Subscribe] and [RunOwned]
// read by one each; a program that serves many clients, or waits for other things
// in the same select, may use one itself:
//
//	r := feed.Reader("clients")
//	defer r.Close()
//	var seen *events.State
//	for {
//		state, next := r.Latest()
//		if state != seen {
//			tell(events.Diff(seen, state)) // if it has News
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
// One goroutine uses it.
type Reader struct {
	feed *Feed
	name string
	seen atomic.Uint64 // version of the state that the subscriber has come to
	out  chan Batch    // of Subscribe: if it is empty, all has been received
}

// Reader opens a reader, which counts in [Feed.ReaderStats] until it is closed. Name
// the kind of subscriber, not each single one: metrics have a series for each name.
func (f *Feed) Reader(name string) *Reader { return f.open(&Reader{feed: f, name: name}) }

func (f *Feed) open(r *Reader) *Reader {
	if s, _ := f.Latest(); s != nil {
		r.seen.Store(s.Version - 1) // what was before concerns nobody who comes now
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = make(map[*Reader]struct{})
	}
	f.readers[r] = struct{}{}
	return r
}

// Close ends the reader. It may be called again.
func (r *Reader) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

// Latest is [Feed.Latest], and says that what it returned before is dealt with.
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

// behind returns how many states were published since the one that r has come to.
func (r *Reader) behind(newest uint64) uint64 {
	if r.out != nil && len(r.out) == 0 {
		return 0
	}
	return newest - min(newest, r.seen.Load())
}

// ReaderStats tells of the open readers of one name.
type ReaderStats struct {
	Name string `json:"name"`
	Open int    `json:"open"` // how many there are

	// Behind is how many states the slowest of them has still to come to. It is 0
	// at rest; if it stays above, that subscriber hangs in what it does with one.
	Behind uint64 `json:"behind"`
}

// ReaderStats returns the open readers by name, in order. It takes time in proportion
// to their number, and may be called from any goroutine.
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
