package events

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/roost-cluster/roost/placement"
)

// Causes of the end of a run's context, returned by [context.Cause]. The cause of the
// context passed to [RunOwned] is a third one.
var (
	ErrReleased = errors.New("events: partition released")
	ErrClosed   = errors.New("events: feed closed")
)

// RunOwned runs f once for each partition that the node owns, each run in a goroutine
// of its own. When a partition is released, RunOwned cancels the context of its run
// with [ErrReleased]. Within one change, released partitions are cancelled before
// acquired partitions start; the cancelled runs may still take time to return.
//
// Two runs of one partition never overlap. If a partition is acquired again while its
// earlier run is winding down, the next run starts when the earlier one has returned,
// if the node still owns the partition. A partition that was lost and regained between
// two batches gets a new run. A run that returns early is not repeated before the
// partition is acquired again.
//
// RunOwned returns ctx.Err() when ctx is done, or [ErrClosed] when feed has ended, in
// both cases after every run has been cancelled and has returned. So f must return when
// its context is done. Runs of other partitions, and in other calls of RunOwned, do overlap.
// So do runs of one partition on two nodes, unless the agent has a handoff
// (cluster.Config.Handoff): then the run begins when no other node has one, and no other
// node begins one before f has returned here.
func RunOwned(ctx context.Context, feed *Feed, f func(context.Context, placement.Partition)) error {
	r := runner{f: f, feed: feed, runs: make(map[placement.Partition]*run), returned: make(chan *run)}
	err := r.follow(ctx)
	cause := err
	if ctx.Err() != nil {
		// The end of ctx is propagating to the runs; no other cause may arrive first.
		cause = context.Cause(ctx)
	}
	for _, run := range r.runs {
		run.cancel(cause)
	}
	for r.live > 0 {
		<-r.returned
		r.live--
	}
	return err
}

// runner holds the runs of one call of RunOwned; only that call touches it.
type runner struct {
	f        func(context.Context, placement.Partition)
	feed     *Feed
	cur      *State
	runs     map[placement.Partition]*run
	live     int // runs that have not returned
	returned chan *run
}

// run is one run of a partition. It stays in the map until its ownership ends, even if
// it returns earlier, so that it is not repeated.
type run struct {
	Ownership
	cancel context.CancelCauseFunc
	done   bool
}

// follow starts and cancels runs to match feed, until feed or ctx ends.
func (r *runner) follow(ctx context.Context) error {
	reader := r.feed.Reader("run_owned")
	defer reader.Close()
	var returned *run // the run that returned last
	for ctx.Err() == nil {
		s, next := reader.Latest()
		if s != r.cur {
			var b Batch
			b.diffOwned(sinceOf(r.cur), sinceOf(s))
			r.cur = s
			r.reconcileAll(ctx, b.Released)
			r.reconcileAll(ctx, b.Acquired)
		}
		if returned != nil { // after the new state: a lost partition must not start again
			r.reconcile(ctx, returned.Partition)
			returned = nil
		}
		if next == nil {
			return ErrClosed
		}
		select {
		case <-next:
		case <-ctx.Done():
		case returned = <-r.returned:
			returned.done = true
			r.live--
		}
	}
	return ctx.Err()
}

func (r *runner) reconcileAll(ctx context.Context, changed []Ownership) {
	for _, o := range changed {
		r.reconcile(ctx, o.Partition)
	}
}

// reconcile starts or cancels the run of p to match the current state. A cancelled run
// is reconciled again when it has returned.
func (r *runner) reconcile(ctx context.Context, p placement.Partition) {
	since := at(r.cur.since, p)
	if old := r.runs[p]; old != nil {
		if old.Since == since {
			return
		}
		if !old.done {
			old.cancel(ErrReleased)
			return
		}
		delete(r.runs, p)
	}
	if since != 0 {
		r.start(ctx, Ownership{p, since})
	}
}

func (r *runner) start(ctx context.Context, o Ownership) {
	if !r.feed.begin(o) {
		return // lost already: the next state says so
	}
	ctx, cancel := context.WithCancelCause(ctx)
	run := &run{Ownership: o, cancel: cancel}
	r.runs[o.Partition] = run
	r.live++
	go func() {
		defer func() {
			cancel(nil)
			r.feed.end(o.Partition)
			r.returned <- run
		}()
		r.f(ctx, o.Partition)
	}()
}

func sinceOf(s *State) []uint64 {
	if s == nil {
		return nil
	}
	return s.since
}

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
