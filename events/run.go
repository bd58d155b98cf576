package events

import (
	"context"
	"errors"

	"github.com/roost-cluster/roost/placement"
)

// Why the context of a run ended, by [context.Cause], beside the cause of the
// context that was given to [RunOwned].
var (
	ErrReleased = errors.New("events: partition released")
	ErrClosed   = errors.New("events: feed closed")
)

// RunOwned runs f once for each partition that the node owns, in a goroutine of
// its own, and cancels the context of that run with [ErrReleased] when the
// partition is released. Within one change, what is released is cancelled before
// what is acquired starts, though it may take its time to return.
//
// Two runs of one partition never overlap. If it is acquired again while the
// earlier run is still winding down, the next one starts when that has
// returned, if the partition is still owned by then. A partition that was lost
// and regained gets a new run even if nobody looked in between. A run that
// returns early is not repeated before the next acquisition.
//
// RunOwned returns when ctx is done, with ctx.Err(), or when feed has ended, with
// [ErrClosed]; in either case after every run has been cancelled and has
// returned. So f must heed its context. Runs of other partitions, of other
// nodes, and of other calls of RunOwned do overlap.
func RunOwned(ctx context.Context, feed *Feed, f func(context.Context, placement.Partition)) error {
	r := runner{f: f, runs: make(map[placement.Partition]*run), returned: make(chan *run)}
	err := r.follow(ctx, feed)
	cause := err
	if ctx.Err() != nil {
		// The end of ctx is on its way to the runs and may not be overtaken by
		// another cause.
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
	cur      *State
	runs     map[placement.Partition]*run
	live     int // runs that have not returned
	returned chan *run
}

// run is one run of a partition. It stays in the map after it has returned, for
// as long as the ownership that it was started for, lest it be repeated.
type run struct {
	Ownership
	cancel context.CancelCauseFunc
	done   bool
}

// follow keeps the runs in line with feed until it or ctx ends.
func (r *runner) follow(ctx context.Context, feed *Feed) error {
	reader := feed.Reader("run_owned")
	defer reader.Close()
	var back *run // has just returned
	for ctx.Err() == nil {
		s, next := reader.Latest()
		if s != r.cur {
			var b Batch
			b.diffOwned(sinceOf(r.cur), sinceOf(s))
			r.cur = s
			r.settleAll(ctx, b.Released)
			r.settleAll(ctx, b.Acquired)
		}
		if back != nil { // only now: it must not be started again on old news
			r.settle(ctx, back.Partition)
			back = nil
		}
		if next == nil {
			return ErrClosed
		}
		select {
		case <-next:
		case <-ctx.Done():
		case back = <-r.returned:
			back.done = true
			r.live--
		}
	}
	return ctx.Err()
}

func (r *runner) settleAll(ctx context.Context, changed []Ownership) {
	for _, o := range changed {
		r.settle(ctx, o.Partition)
	}
}

// settle brings the run of p in line with the current state, or on the way
// there: a run that has to end is settled once more when it has returned.
func (r *runner) settle(ctx context.Context, p placement.Partition) {
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
	ctx, cancel := context.WithCancelCause(ctx)
	run := &run{Ownership: o, cancel: cancel}
	r.runs[o.Partition] = run
	r.live++
	go func() {
		defer func() {
			cancel(nil)
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
