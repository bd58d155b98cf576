package events

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/roost-cluster/roost/placement"
)

// Reasons why the context of a run is canceled, as returned by [context.Cause]. If the context passed to
// [RunOwned] ends first, context.Cause returns the cause of that context.
var (
	ErrReleased = errors.New("events: partition released")
	ErrClosed   = errors.New("events: feed closed")
)

// RunOwned runs f once for each partition that the node owns, each run in its own goroutine. When a partition
// is released, RunOwned cancels the context of its run with [ErrReleased]. Within a change, RunOwned cancels
// the runs of released partitions before it starts runs of acquired partitions. The canceled runs may still
// take time to return.
//
// Two runs of the same partition never overlap. If the node acquires a partition again while its earlier run
// is winding down, the next run starts when the earlier run has returned, provided that the node still owns
// the partition. A partition that was lost and regained between two batches gets a new run. If f returns
// early, RunOwned only calls it again for this partition after the node has released and acquired the
// partition again.
//
// RunOwned returns ctx.Err() when ctx is done, or [ErrClosed] when feed has ended. In both cases, RunOwned
// first cancels all runs and waits until they have returned. So f must return when its context is done.
//
// Runs of different partitions overlap, and so do runs of different calls of RunOwned. Runs of the same
// partition on two nodes can also overlap, except with handoff (cluster.Config.Handoff). With handoff, a run
// only begins after the runs of the partition on other nodes have returned.
func RunOwned(ctx context.Context, feed *Feed, f func(context.Context, placement.Partition)) error {
	r := runner{f: f, feed: feed, runs: make(map[placement.Partition]*run), returned: make(chan *run)}
	err := r.follow(ctx)
	cause := err
	if ctx.Err() != nil {
		// ctx is done, and its cause is reaching the runs. Use the same cause, so that all runs see it.
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

// runner manages the runs of a single call of RunOwned. Only the goroutine of that call uses the runner.
type runner struct {
	f        func(context.Context, placement.Partition)
	feed     *Feed
	cur      *State
	runs     map[placement.Partition]*run
	live     int // runs that have not returned
	returned chan *run
}

// run is a run of a partition. Even if the run returns early, it remains in the map until the ownership ends,
// so that it is not repeated.
type run struct {
	Ownership
	cancel context.CancelCauseFunc
	done   bool
}

// follow starts and cancels runs to match feed, until feed or ctx ends.
func (r *runner) follow(ctx context.Context) error {
	reader := r.feed.Reader("run_owned")
	defer reader.Close()
	var returned *run // the run that has just returned
	for ctx.Err() == nil {
		s, next := reader.Latest()
		if s != r.cur {
			var b Batch
			b.diffOwned(sinceOf(r.cur), sinceOf(s))
			r.cur = s
			r.reconcileAll(ctx, b.Released)
			r.reconcileAll(ctx, b.Acquired)
		}
		if returned != nil { // after reading the new state, so that a lost partition does not start again
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

// reconcile starts or cancels the run of p to match the current state. A canceled run is reconciled again when it has
// returned.
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
		return // the partition is already lost, as the next state shows
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
	returned chan struct{} // receives a value after a run has returned
	none     chan struct{} // closed when no run is left; nil = nobody is waiting
}

// Runs reports whether a run of p has begun in any call of [RunOwned] and has not returned. After a state
// that does not own p was published and all runs of p have returned, Runs returns false until a published
// state owns p again.
func (f *Feed) Runs(p placement.Partition) bool {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	return f.runs.of[p] > 0
}

// Returned returns a channel that receives a value after one or more runs have returned.
func (f *Feed) Returned() <-chan struct{} {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	return f.runs.signal()
}

// AwaitRuns waits until all runs in all calls of [RunOwned] have returned. If ctx ends first, AwaitRuns
// returns the partitions whose runs have not returned, in ascending order. Before you call AwaitRuns, publish
// a state that owns nothing, because otherwise new runs can begin.
func (f *Feed) AwaitRuns(ctx context.Context) (left []placement.Partition) {
	for {
		left, none := f.runs.left()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-none:
		case <-ctx.Done():
			left, _ = f.runs.left() // some runs may have returned since then
			return left
		}
	}
}

// left returns the partitions that have runs, and a channel that is closed when there are none.
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

// begin counts a run if its ownership has not ended. It reads the newest state after counting the run. So
// either the publisher of a later state sees the run, or begin sees that state.
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
