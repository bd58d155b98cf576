package events

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/roost-cluster/roost/placement"
)

// runs counts the runs of all calls of [RunOwned] that have not returned.
type runs struct {
	mu       sync.Mutex
	of       map[placement.Partition]int
	returned chan struct{} // receives after a run has returned
	none     chan struct{} // closed when no run is left; nil = nobody waits for that
}

// Runs reports whether a run of p has begun in [RunOwned], in any call, and has not
// returned. It returns false for good once a state is published that does not own p, and
// the runs have returned.
func (f *Feed) Runs(p placement.Partition) bool {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	return f.runs.of[p] > 0
}

// Returned receives after runs have returned, once for any number of them.
func (f *Feed) Returned() <-chan struct{} {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	return f.runs.signal()
}

// AwaitRuns returns when no run of [RunOwned] is left, in any call, or when ctx ends: then with the
// partitions whose runs have not returned, ascending. Runs begin for as long as the newest
// state owns partitions, so call AwaitRuns after one that owns nothing.
func (f *Feed) AwaitRuns(ctx context.Context) (left []placement.Partition) {
	for {
		left, none := f.runs.left()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-none:
		case <-ctx.Done():
			left, _ = f.runs.left() // some may have returned since
			return left
		}
	}
}

// left returns the partitions with runs, and a channel that is closed when there are none.
func (r *runs) left() (_ []placement.Partition, none <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none == nil && len(r.of) > 0 {
		r.none = make(chan struct{})
	}
	return slices.Sorted(maps.Keys(r.of)), r.none
}

func (r *runs) signal() chan struct{} {
	if r.returned == nil {
		r.returned = make(chan struct{}, 1)
	}
	return r.returned
}

// begin counts a run, unless its ownership is over. It looks at the newest state after it
// has counted: the publisher of a later one sees the run, or the run sees that state.
func (f *Feed) begin(o Ownership) bool {
	f.runs.mu.Lock()
	if f.runs.of == nil {
		f.runs.of = make(map[placement.Partition]int)
	}
	f.runs.of[o.Partition]++
	f.runs.mu.Unlock()
	if s, _ := f.Latest(); at(s.since, o.Partition) == o.Since {
		return true
	}
	f.end(o.Partition)
	return false
}

func (f *Feed) end(p placement.Partition) {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	if f.runs.of[p]--; f.runs.of[p] == 0 {
		delete(f.runs.of, p)
	}
	if len(f.runs.of) == 0 && f.runs.none != nil {
		close(f.runs.none)
		f.runs.none = nil
	}
	select {
	case f.runs.signal() <- struct{}{}:
	default:
	}
}
