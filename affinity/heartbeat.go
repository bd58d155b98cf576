package affinity

import (
	"context"
	"errors"
	"time"
)

// run renews everybody who is here until ctx ends.
func (p *Presence) run(ctx context.Context) {
	defer close(p.done)
	var (
		start = time.Now()
		slot  = p.cfg.Interval / time.Duration(p.cfg.slots())
		timer = time.NewTicker(slot)
		next  int64 // slot that has not been beaten yet
		down  bool
	)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// By the clock and not by ticks: a ticker leaves out those that came while
		// the store was slow, and their slots would miss a whole interval.
		now := int64(time.Since(start) / slot)
		if now <= next {
			continue
		}
		err := p.beat(ctx, next, now)
		next = now
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !down:
			p.cfg.Log.Warn("presence not renewed, trying again", "err", err, "every", slot, "stale_after", p.cfg.stale())
		case err == nil && down:
			p.cfg.Log.Info("presence renewed again")
		}
		down = err != nil
	}
}

// beat renews the slots from first to before last, and then writes what is owed,
// in separate calls: a room that the store cannot take must not make debts of
// each slot in turn.
func (p *Presence) beat(ctx context.Context, first, last int64) error {
	p.mu.Lock()
	due := p.here.due(first, last)
	p.mu.Unlock()
	err := p.write(ctx, due)
	p.mu.Lock()
	debts := p.here.debts(time.Now().Add(-p.cfg.stale()))
	p.mu.Unlock()
	return errors.Join(err, p.write(ctx, debts))
}

// write carries out writes that have begun, and ends them.
func (p *Presence) write(ctx context.Context, writes []write) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.patience())
	defer cancel()
	var here, gone []Seat
	for _, w := range writes {
		if w.gone {
			gone = append(gone, w.Seat)
		} else {
			here = append(here, w.Seat)
		}
	}
	var beatErr, leaveErr error
	if len(here) > 0 {
		beatErr = p.store.Beat(ctx, p.cfg.stale(), here...)
	}
	if len(gone) > 0 {
		leaveErr = p.store.Leave(ctx, gone...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range writes {
		if w.gone {
			p.here.end(w, leaveErr)
		} else {
			p.here.end(w, beatErr)
		}
	}
	if beatErr == nil {
		p.beats += uint64(len(here))
	} else {
		p.failed += uint64(len(here))
	}
	return errors.Join(beatErr, leaveErr)
}
