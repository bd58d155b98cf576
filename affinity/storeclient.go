package affinity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/sony/gobreaker/v2"
)

const (
	tripAfter = 3               // calls in a row without an answer in time
	openTime  = time.Second     // until the next call is tried
	bulkTime  = 2 * time.Second // for a call that no caller waits for
	bulkOps   = 256             // in one call, so that other calls get their turn
	awayAfter = 3               // failed heartbeats in a row
)

// storeClient calls the Store: within the budget and behind a circuit breaker for
// callers who wait, in batches for the goroutines. It counts the calls and knows
// whether the store answers.
type storeClient struct {
	store   Store
	budget  time.Duration
	log     *slog.Logger
	tracer  Tracer // may be nil
	breaker *gobreaker.CircuitBreaker[[]Result]

	// transition is 0, or 1 plus the state that the breaker has just entered. The
	// breaker reports it under its own lock, where no log handler may run.
	transition atomic.Int32

	failedBeats int         // in a row; owned by the keeper
	away        atomic.Bool // awayAfter heartbeats in a row have failed

	calls  atomic.Uint64
	waited atomic.Int64 // nanoseconds
	errors atomic.Uint64
}

// newStoreClient returns a client with a breaker that opens after several calls that
// were not answered in time. Then all calls but one a second fail at once. Calls that fail
// quickly need no breaker.
func newStoreClient(store Store, cfg Config) *storeClient {
	c := &storeClient{store: store, budget: cfg.Budget, log: cfg.Log, tracer: cfg.Tracer}
	c.breaker = gobreaker.NewCircuitBreaker[[]Result](gobreaker.Settings{
		Name:          "store",
		MaxRequests:   1,
		Timeout:       openTime,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= tripAfter },
		IsSuccessful:  func(err error) bool { return !errors.Is(err, context.DeadlineExceeded) },
		OnStateChange: c.changed,
	})
	return c
}

func (c *storeClient) changed(_ string, from, to gobreaker.State) {
	if from == gobreaker.StateClosed || to == gobreaker.StateClosed {
		c.transition.Store(1 + int32(to))
	}
}

func (c *storeClient) logTransition() {
	switch c.transition.Swap(0) {
	case 1 + int32(gobreaker.StateOpen):
		c.log.Warn("store circuit breaker opened")
	case 1 + int32(gobreaker.StateClosed):
		c.log.Info("store circuit breaker closed")
	}
}

// bounded limits a call to the budget. Only time ends the call: a caller who gives
// up must not look like a store that does not answer.
func (c *storeClient) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.budget)
}

// swap performs one op for a caller who waits.
func (c *storeClient) swap(ctx context.Context, op Op) Result {
	results, err := c.breaker.Execute(func() ([]Result, error) {
		asked := time.Now()
		got := c.store.Swap(ctx, op)
		c.calls.Add(1)
		c.waited.Add(int64(time.Since(asked)))
		return got, got[0].Err
	})
	c.logTransition()
	if err == nil {
		return results[0]
	}
	c.errors.Add(1)
	if c.tracer != nil && (errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)) {
		c.tracer.Unasked(ctx, err)
	}
	if !errors.Is(err, ErrStore) { // the breaker's own
		err = fmt.Errorf("%w: %w", ErrStore, err)
	}
	return Result{Err: err}
}

// swapAll performs ops in batches. After a batch that failed altogether it stops;
// the remaining ops fail likewise.
func (c *storeClient) swapAll(ctx context.Context, ops []Op) []Result {
	results := make([]Result, 0, len(ops))
	for len(ops) > 0 {
		n := min(bulkOps, len(ops))
		batch, cancel := context.WithTimeout(ctx, bulkTime)
		got := c.store.Swap(batch, ops[:n]...)
		cancel()
		results = append(results, got...)
		ops = ops[n:]
		if allFailed(got) {
			c.errors.Add(1)
			for range ops {
				results = append(results, Result{Err: got[0].Err})
			}
			break
		}
	}
	return results
}

func allFailed(results []Result) bool {
	for _, res := range results {
		if res.Err == nil {
			return false
		}
	}
	return true
}

// heartbeat sends this node's heartbeat for the keeper and detects that the store is
// away. back reports the first answer after that.
func (c *storeClient) heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) (alive []bool, back bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	if alive, err = c.store.Heartbeat(ctx, self, ttl, ask); err != nil {
		if c.failedBeats++; c.failedBeats == awayAfter {
			c.away.Store(true)
			c.log.Warn("store does not answer; resolving without it", "err", err)
		}
		return nil, false, err
	}
	c.failedBeats = 0
	if back = c.away.Swap(false); back {
		c.log.Info("store answers again")
	}
	return alive, back, nil
}

// stats adds the client's figures.
func (c *storeClient) stats(s *Stats) {
	breaker := c.breaker.State()
	s.StoreCalls, s.StoreTime = c.calls.Load(), time.Duration(c.waited.Load())
	s.StoreErrors, s.Breaker = c.errors.Load(), breaker.String()
	s.StoreDoubt = c.away.Load() || breaker == gobreaker.StateOpen
}
