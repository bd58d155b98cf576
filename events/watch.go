package events

import (
	"context"
	"iter"
)

// Watch returns the changes of feed as a sequence, until ctx is done or feed ends. Each range over it begins
// with a full batch, which has all partitions that the node owns at that moment. The full batch arrives as
// soon as there is a state, even if the node owns nothing. Each later batch has the changes since the
// previous one, and is never empty. Changes during the loop body are merged into the next batch, which leads
// to the newest state.
//
// Don't modify batches, because watchers at the same state share them. Watch needs no goroutine. Between
// batches it keeps one state in memory.
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
// batch is read, Subscribe takes the batch back and merges its changes into the next one. So a receiver that
// does not read costs the memory of one batch and two states, and gets the newest state when it reads again.
//
// The channel is closed when feed ends or ctx is done. After the end of feed, the last batch can still be
// received. When ctx is done, Subscribe takes an unread batch back. Subscribe starts a goroutine, which never
// waits for the receiver and ends when ctx or feed ends.
func Subscribe(ctx context.Context, feed *Feed) <-chan Batch {
	out := make(chan Batch, 1)
	r := feed.open(&Reader{feed: feed, name: "subscribe", out: out})
	go func() {
		defer r.Close()
		defer close(out)
		// offered is the state of the latest batch. delivered is the state that the receiver has reached with
		// the batches that it received.
		var delivered, offered *State
		for ctx.Err() == nil {
			s, next := feed.Latest()
			if s != offered {
				if !takeBack(out) {
					delivered = offered
					r.reached(delivered)
				}
				if b, news := feed.changes(delivered, s); news {
					out <- b // never blocks: out is empty, and this is the only sender
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

// takeBack empties the channel and reports whether it held a batch.
func takeBack(out <-chan Batch) bool {
	select {
	case <-out:
		return true
	default:
		return false
	}
}
