package presence

import (
	"context"
	"errors"
	"time"
)

// run renews the participants of this node until ctx ends.
func (t *Tracker) run(ctx context.Context) {
	defer close(t.done)
	var (
		start = time.Now()
		slot  = t.cfg.Interval / time.Duration(t.cfg.slots())
		timer = time.NewTicker(slot)
		next  int64 // the first slot that has not been renewed
		down  bool
	)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// Compute the slot from the clock instead of counting ticks. A ticker drops ticks while the store is
		// slow, and the slots of the dropped ticks would miss a whole interval.
		now := int64(time.Since(start) / slot)
		if now <= next {
			continue
		}
		err := t.heartbeat(ctx, next, now)
		next = now
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !down:
			t.cfg.Log.Warn("presence not renewed, retrying", "err", err, "every", slot, "stale_after", t.cfg.stale())
		case err == nil && down:
			t.cfg.Log.Info("presence is renewed again")
		}
		down = err != nil
	}
}

// heartbeat renews the slots first to last-1 and then writes the owed changes. The two steps are separate
// calls to the store, so that a room that the store rejects does not cause a retry of every slot.
func (t *Tracker) heartbeat(ctx context.Context, first, last int64) error {
	t.mu.Lock()
	due := t.here.due(first, last)
	t.mu.Unlock()
	err := t.write(ctx, due)
	t.mu.Lock()
	debts := t.here.debts(time.Now().Add(-t.cfg.stale()))
	t.mu.Unlock()
	return errors.Join(err, t.write(ctx, debts))
}

// write sends writes that have begun to the store and records their results.
func (t *Tracker) write(ctx context.Context, writes []write) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.timeout())
	defer cancel()
	var here, gone []Participant
	for _, w := range writes {
		if w.gone {
			gone = append(gone, w.Participant)
		} else {
			here = append(here, w.Participant)
		}
	}
	var heartbeatErr, leaveErr error
	if len(here) > 0 {
		heartbeatErr = t.store.Heartbeat(ctx, t.cfg.stale(), here...)
	}
	if len(gone) > 0 {
		leaveErr = t.store.Leave(ctx, gone...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range writes {
		if w.gone {
			t.here.end(w, leaveErr)
		} else {
			t.here.end(w, heartbeatErr)
		}
	}
	if heartbeatErr == nil {
		t.heartbeats += uint64(len(here))
	} else {
		t.failed += uint64(len(here))
	}
	return errors.Join(heartbeatErr, leaveErr)
}
