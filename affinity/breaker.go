package affinity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	tripAfter = 3               // failures in a row
	openTime  = time.Second     // until the store is tried again
	bulkTime  = 2 * time.Second // for work that nobody waits for
	bulkOps   = 256             // in one call, so that others get their turn
)

// newBreaker keeps joins from waiting for a store that hangs: after a few that
// waited in vain they do not ask it at all, but for one a second. What fails
// quickly, be it for one key or for all, needs no breaker.
func newBreaker(r *Resolver) *gobreaker.CircuitBreaker[[]Result] {
	return gobreaker.NewCircuitBreaker[[]Result](gobreaker.Settings{
		Name:         "store",
		MaxRequests:  1,
		Timeout:      openTime,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool { return !errors.Is(err, context.DeadlineExceeded) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed {
				r.log.Warn("the store hangs: joins do not wait for it")
			} else if to == gobreaker.StateClosed {
				r.log.Info("the store does not hang any more")
			}
		},
	})
}

// budget bounds a call of the store on somebody's behalf. A caller who gives up
// must not look like a store that does not answer, so it ends with the time alone.
func (r *Resolver) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Budget)
}

// swapOne performs one op on the join path.
func (r *Resolver) swapOne(ctx context.Context, op Op) Result {
	results, err := r.breaker.Execute(func() ([]Result, error) {
		asked := time.Now()
		got := r.store.Swap(ctx, op)
		r.counts.storeCalls.Add(1)
		r.counts.storeTime.Add(int64(time.Since(asked)))
		return got, got[0].Err
	})
	if err != nil {
		r.counts.storeErrors.Add(1)
		if r.cfg.Tracer != nil && (errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)) {
			r.cfg.Tracer.Unasked(ctx, err)
		}
		if !errors.Is(err, ErrStore) { // the breaker's own
			err = fmt.Errorf("%w: %w", ErrStore, err)
		}
		return Result{Err: err}
	}
	return results[0]
}

// swapMany performs ops that nobody waits for, in pieces. It stops at the first
// piece that fails altogether; what was not tried has that error, too.
func (r *Resolver) swapMany(ctx context.Context, ops []Op) []Result {
	results := make([]Result, 0, len(ops))
	for len(ops) > 0 {
		n := min(bulkOps, len(ops))
		piece, cancel := context.WithTimeout(ctx, bulkTime)
		got := r.store.Swap(piece, ops[:n]...)
		cancel()
		results = append(results, got...)
		ops = ops[n:]
		if failed(got) {
			r.counts.storeErrors.Add(1)
			for range ops {
				results = append(results, Result{Err: got[0].Err})
			}
			break
		}
	}
	return results
}

func failed(results []Result) bool {
	for _, res := range results {
		if res.Err == nil {
			return false
		}
	}
	return true
}
