// Package storeclient calls the pin store. For waiting callers, each call has a time budget and passes a
// circuit breaker. For background goroutines, it sends ops in batches.
package storeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/latency"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/sony/gobreaker/v2"
)

// Limits of a batch.
const (
	BulkTime = 2 * time.Second // longer than the default budget, because no caller waits for it
	BulkOps  = 256             // small enough not to delay other calls
)

const (
	tripAfter = 3           // timeouts in a row
	openTime  = time.Second // how long the breaker stays open before it tries a call
	awayAfter = 3           // failed heartbeats in a row
)

// Client calls a Store. Client counts the calls and tracks whether the store answers. For Index, and for
// heartbeats that should not affect this state, use the Store field directly.
type Client struct {
	Store   pinstore.Store
	budget  time.Duration
	log     *slog.Logger
	unasked func(ctx context.Context, why error) // may be nil
	queue   queue
	breaker *gobreaker.CircuitBreaker[[]pinstore.Result]

	// transition is 0, or 1 plus the state that the breaker has just entered. The client logs the transition
	// later, because the breaker reports it while holding a lock, and no log handler may run under a lock.
	transition atomic.Int32

	FailedHeartbeats int          // in a row; owned by the keeper
	away             atomic.Bool  // awayAfter heartbeats in a row have failed
	problem          atomic.Value // string: why the latest failed call failed

	took   latency.Histogram
	errors atomic.Uint64

	latest    [3]time.Duration // times of the latest heartbeats; owned by the keeper
	heartbeat int              // number of answered heartbeats
	far       bool             // the log reports the store as too far away
	roundTrip atomic.Int64     // the shortest of latest, in nanoseconds; 0 until latest is full
}

// New returns a client with a circuit breaker that opens after several timeouts in a row. While the breaker is open,
// all calls fail immediately, except one call per second. Errors other than timeouts don't open the breaker.
//
// If unasked is not nil, the client calls it for each op that gets no call because the breaker is open.
func New(store pinstore.Store, budget time.Duration, log *slog.Logger, unasked func(ctx context.Context, why error)) *Client {
	c := &Client{Store: store, budget: budget, log: log, unasked: unasked}
	c.queue = queue{call: c.call, budget: budget}
	c.breaker = gobreaker.NewCircuitBreaker[[]pinstore.Result](gobreaker.Settings{
		Name:          "store",
		MaxRequests:   1,
		Timeout:       openTime,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= tripAfter },
		IsSuccessful:  func(err error) bool { return !errors.Is(err, context.DeadlineExceeded) },
		OnStateChange: c.changed,
	})
	return c
}

func (c *Client) changed(_ string, from, to gobreaker.State) {
	if from == gobreaker.StateClosed || to == gobreaker.StateClosed {
		c.transition.Store(1 + int32(to))
	}
}

func (c *Client) logTransition() {
	switch c.transition.Swap(0) {
	case 1 + int32(gobreaker.StateOpen):
		c.log.Warn("store circuit breaker opened")
	case 1 + int32(gobreaker.StateClosed):
		c.log.Info("store circuit breaker closed")
	}
}

// Bounded returns a context that limits a call to the budget. The new context ignores a cancellation of ctx,
// because a caller who gives up must not look like a store that does not answer.
func (c *Client) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.budget)
}

// Swap performs an op for a waiting caller.
func (c *Client) Swap(ctx context.Context, op pinstore.Op) pinstore.Result {
	result := c.queue.swap(ctx, op)
	if result.Err == nil {
		return result
	}
	c.errors.Add(1)
	if c.unasked != nil && isBreakers(result.Err) {
		c.unasked(ctx, result.Err)
	}
	return pinstore.Result{Err: result.Err}
}

// isBreakers reports whether the breaker has rejected a call.
func isBreakers(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// call performs ops in one store call behind the breaker, and measures its time. The call is considered a
// timeout if every op timed out. A call that only had the rest of a join's budget is never considered a
// timeout.
func (c *Client) call(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	whole := c.queue.whole(ctx)
	results, err := c.breaker.Execute(func() ([]pinstore.Result, error) {
		asked := time.Now()
		got := c.Store.Swap(ctx, ops...)
		took := time.Since(asked)
		for range ops { // each op has waiting callers
			c.took.Add(took)
		}
		for _, r := range got {
			if !whole || !errors.Is(r.Err, context.DeadlineExceeded) {
				return got, nil
			}
		}
		return got, context.DeadlineExceeded
	})
	c.logTransition()
	if isBreakers(err) {
		results = slices.Repeat([]pinstore.Result{{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, err)}}, len(ops))
	}
	return results
}

// SwapAll performs ops in batches. If after is not nil, SwapAll calls it after each batch. If all ops of a
// batch fail, SwapAll stops, and the remaining ops fail with the same error.
func (c *Client) SwapAll(ctx context.Context, ops []pinstore.Op, after func()) []pinstore.Result {
	results := make([]pinstore.Result, 0, len(ops))
	for len(ops) > 0 {
		n := min(BulkOps, len(ops))
		batch, cancel := context.WithTimeout(ctx, BulkTime)
		got := c.Store.Swap(batch, ops[:n]...)
		cancel()
		if after != nil {
			after()
		}
		results = append(results, got...)
		ops = ops[n:]
		if !slices.ContainsFunc(got, func(r pinstore.Result) bool { return r.Err == nil }) {
			c.errors.Add(1)
			for range ops {
				results = append(results, pinstore.Result{Err: got[0].Err})
			}
			break
		}
	}
	return results
}

// Heartbeat sends this node's heartbeat for the keeper, and detects when the store does not answer. back is
// set for the first answer after such an outage.
func (c *Client) Heartbeat(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	ask []lease.Incarnation,
) (alive []bool, back bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	asked := time.Now()
	if alive, err = c.Store.Heartbeat(ctx, self, ttl, ask); err != nil {
		c.problem.Store(c.whyFailed(err))
		if c.FailedHeartbeats++; c.FailedHeartbeats == awayAfter {
			c.away.Store(true)
			c.log.Warn("store does not answer; resolving without it", "err", err)
		}
		return nil, false, err
	}
	c.FailedHeartbeats = 0
	c.answered(time.Since(asked))
	if back = c.away.Swap(false); back {
		c.log.Info("store answers again")
	}
	return alive, back, nil
}

// answered records how long a heartbeat took. answered logs a warning if three round trips, which a join may
// need, exceed the budget. answered uses the shortest of the latest times, because a busy machine can delay
// single heartbeats.
func (c *Client) answered(took time.Duration) {
	c.latest[c.heartbeat%len(c.latest)] = took
	if c.heartbeat++; c.heartbeat < len(c.latest) {
		return
	}
	shortest := slices.Min(c.latest[:])
	c.roundTrip.Store(int64(shortest))
	switch {
	case !c.far && shortest > c.budget/3:
		c.far = true
		c.log.Warn("store is too far for its budget", "round_trip", shortest.Round(time.Millisecond), "budget", c.budget,
			"do", "allow more time (--redis-timeout, affinity.Config.Budget), or move the store nearer")
	case c.far && shortest < c.budget/4:
		c.far = false
		c.log.Info("store is near enough again", "round_trip", shortest.Round(time.Millisecond), "budget", c.budget)
	}
}

// whyFailed returns a short reason for a failed call. whyFailed distinguishes a timeout from a refused
// connection, because a slow store needs another fix than a stopped store.
func (c *Client) whyFailed(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok { // omit the addresses
		return e.Error()
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" { // report the missing connection instead of a timeout
		return e.Error()
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return fmt.Sprintf("not within %v", c.budget)
	}
	return strings.TrimPrefix(err.Error(), pinstore.ErrStore.Error()+": ")
}

// Away reports whether the latest awayAfter heartbeats, or more, have failed.
func (c *Client) Away() bool { return c.away.Load() }

// Stats counts the calls of waiting callers.
type Stats struct {
	Took    latency.Counts
	Errors  uint64 // calls that failed or that the breaker rejected, and batches that failed
	Breaker string // closed, half-open or open
	Doubt   bool   // the store does not answer
	Problem string // of Doubt

	RoundTrip time.Duration // the shortest time of the latest three heartbeats; 0 before the third
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	breaker := c.breaker.State()
	s := Stats{
		Took: c.took.Counts(), Errors: c.errors.Load(),
		RoundTrip: time.Duration(c.roundTrip.Load()),
		Breaker:   breaker.String(), Doubt: c.away.Load() || breaker == gobreaker.StateOpen,
	}
	if s.Doubt {
		s.Problem = c.whyFailed(context.DeadlineExceeded) // only timeouts open the breaker
	}
	if problem, failed := c.problem.Load().(string); failed && c.away.Load() {
		s.Problem = problem
	}
	return s
}
