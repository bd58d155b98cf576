package events

import (
	"context"
	"iter"
)

// Watch returns the changes of feed as a sequence, for as long as ctx lasts and
// feed is open. Each range over it starts anew: its first batch is a full one, with
// everything that is owned at that moment, and comes as soon as there is a state,
// even if nothing is owned; each later one holds what changed since the one before,
// and is never empty. While the loop body runs, changes merge: the next batch is
// the difference to whatever is newest by then.
//
// Watch needs no goroutine and, between batches, holds on to one state.
func Watch(ctx context.Context, feed *Feed) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		r := feed.Reader("watch")
		defer r.Close()
		var seen *State
		for ctx.Err() == nil {
			s, next := r.Latest()
			if b, news := changes(seen, s); news && !yield(b) {
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

// Subscribe is [Watch] for select loops. The channel holds one batch. A batch
// that still lies there when a newer state arrives is taken back, and its news
// becomes part of the next one; so a reader that stays away costs one batch and
// two states, and is up to date when it returns.
//
// The channel is closed when feed ends or ctx is done, whichever is first: at the
// end of feed the last batch can still be received, however late; when ctx is
// done it is taken back. Subscribe runs one goroutine, which never waits for the
// reader and so ends with ctx or feed, whether or not anybody reads.
func Subscribe(ctx context.Context, feed *Feed) <-chan Batch {
	out := make(chan Batch, 1)
	r := feed.open(&Reader{feed: feed, name: "subscribe", out: out})
	go func() {
		defer r.Close()
		defer close(out)
		// offered is the state of the latest batch; delivered, the one that the
		// reader has reached by what it received.
		var delivered, offered *State
		for ctx.Err() == nil {
			s, next := feed.Latest()
			if s != offered {
				if !takeBack(out) {
					delivered = offered
					r.reached(delivered)
				}
				if b, news := changes(delivered, s); news {
					out <- b // never blocks: it is empty, and there is no other sender
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

// changes returns the difference of two states and whether it has to be told:
// a refresh is not, a first state always is.
func changes(old, cur *State) (b Batch, news bool) {
	if cur == old {
		return Batch{}, false
	}
	b = Diff(old, cur)
	return b, b.News()
}

// wait returns when next is closed or ctx is done.
func wait(ctx context.Context, next <-chan struct{}) {
	select {
	case <-next:
	case <-ctx.Done():
	}
}

// takeBack empties the channel and reports whether there was anything in it.
func takeBack(out <-chan Batch) bool {
	select {
	case <-out:
		return true
	default:
		return false
	}
}
