package events

import (
	"context"
	"iter"
)

// Watch returns the changes of feed as a sequence, until ctx is done or feed ends. Each range over the
// sequence begins with a full batch, which contains all partitions that the node owns at that moment. The
// full batch arrives as soon as there is a state, even if the node owns nothing. Each later batch contains
// the changes since the previous batch, and is never empty. If several states are published while the loop
// body runs, the next batch contains their combined changes.
//
// Don't modify batches, because watchers at the same state share them. Watch starts no goroutine. Between
// batches, it keeps a single state in memory.
func Watch(ctx context.Context, feed *Feed) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		r := feed.Reader("watch")
		defer r.Close()
		var seen *State
		for ctx.Err() == nil {
			s, next := r.Latest()
			if b, news := feed.changes(seen, s); news && !yield(b) {
				return
			}
			seen = s
			if next == nil {
				return
			}
			wait(ctx, next)
		}
	}
}

// Subscribe is [Watch] for select loops. The channel holds one batch. If a newer state arrives before the
// receiver has read the batch, Subscribe takes the batch back and sends a batch with the combined changes. So
// a receiver that does not read only costs the memory of a batch and two states, and gets the newest state
// when it reads again.
//
// The channel is closed when feed ends or ctx is done. After feed has ended, the receiver can still read the
// last batch. When ctx is done, Subscribe takes an unread batch back. Subscribe starts a goroutine, which
// never waits for the receiver and ends when ctx or feed ends.
func Subscribe(ctx context.Context, feed *Feed) <-chan Batch {
	out := make(chan Batch, 1)
	r := feed.open(&Reader{feed: feed, name: "subscribe", out: out})
	go func() {
		defer r.Close()
		defer close(out)
		// offered is the state of the latest batch, which the receiver may not have read yet. delivered is
		// the state of the latest batch that the receiver has read.
		var delivered, offered *State
		for ctx.Err() == nil {
			s, next := feed.Latest()
			if s != offered {
				if !takeBack(out) {
					delivered = offered
					r.reached(delivered)
				}
				if b, news := feed.changes(delivered, s); news {
					out <- b // never blocks, because out is empty and this goroutine is the only sender
				}
				offered = s
			}
			if next == nil {
				return
			}
			wait(ctx, next)
		}
		takeBack(out)
	}()
	return out
}

// wait returns when next is closed or ctx is done.
func wait(ctx context.Context, next <-chan struct{}) {
	select {
	case <-next:
	case <-ctx.Done():
	}
}

// takeBack empties the channel and reports whether the channel contained a batch.
func takeBack(out <-chan Batch) bool {
	select {
	case <-out:
		return true
	default:
		return false
	}
}
