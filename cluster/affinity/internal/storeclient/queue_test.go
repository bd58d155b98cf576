package storeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// gated is a Store whose calls wait for a gate. It records the number of ops in each call.
type gated struct {
	*pinstore.Memory
	gate chan struct{} // each value lets one call continue

	mu    sync.Mutex
	sizes []int
}

func (g *gated) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	g.mu.Lock()
	g.sizes = append(g.sizes, len(ops))
	g.mu.Unlock()
	select {
	case <-g.gate:
		return g.Memory.Swap(ctx, ops...)
	case <-ctx.Done():
		results := make([]pinstore.Result, len(ops))
		for i := range results {
			results[i].Err = storeError(ctx.Err())
		}
		return results
	}
}

func (g *gated) calls() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sizes)
}

const budget = 150 * time.Millisecond

func newGated() (*queue, *gated) {
	g := &gated{Memory: pinstore.NewMemory(), gate: make(chan struct{})}
	return &queue{call: g.Swap, budget: budget}, g
}

// claims starts concurrent callers, each of which claims its own room for its own node. The returned function waits for
// all answers and returns the errors.
func claims(ctx context.Context, q *queue, from, till int) func() []error {
	errs := make([]error, till)
	var wait sync.WaitGroup
	for i := from; i < till; i++ {
		wait.Go(func() {
			op := pinstore.Op{
				Room: fmt.Sprint(i), TTL: time.Hour,
				Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: lease.NodeID(fmt.Sprint("n", i)), Number: 1}},
			}
			res := q.swap(ctx, op)
			if errs[i] = res.Err; res.Err == nil && (!res.Done || res.Pin.Node != op.Set.Node) {
				errs[i] = fmt.Errorf("op %d got the answer %+v", i, res)
			}
		})
	}
	return func() []error { wait.Wait(); return errs[from:] }
}

// Callers that arrive while calls are running share the next call. Each caller gets its own answer. Afterwards the
// queue is empty again.
func TestQueueShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newGated()
		var want []int
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			first := claims(ctx, q, 0, abreast)
			synctest.Wait()
			rest := claims(ctx, q, abreast, abreast+sharing+10)
			synctest.Wait()
			want = append(want, slices.Repeat([]int{1}, abreast)...)
			if got := g.calls(); !slices.Equal(got, want) {
				t.Fatalf("calls of %v ops; want %v", got, want)
			}
			g.gate <- struct{}{}
			synctest.Wait()
			g.gate <- struct{}{}
			synctest.Wait()
			want = append(want, sharing, 10)
			if got := g.calls(); !slices.Equal(got, want) {
				t.Fatalf("calls of %v ops; want %v", got, want)
			}
			for range abreast {
				g.gate <- struct{}{}
			}
			if err := errors.Join(append(first(), rest()...)...); err != nil {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait()
			if q.running != 0 || len(q.waiting) != 0 {
				t.Fatalf("%d calls are running, %d wait; want none", q.running, len(q.waiting))
			}
			g.Memory = pinstore.NewMemory()
		}
	})
}

// While the store hangs, the number of running calls is limited, and no caller waits longer than its budget. The error
// of a claim that was never sent differs from the error of a claim that may still take effect.
func TestQueueHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newGated()
		q.budget = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), q.budget)
		defer cancel()
		var sent []func() []error
		for i := range most {
			sent = append(sent, claims(ctx, q, i, i+1))
			time.Sleep(tick)
			synctest.Wait()
		}
		late, cancelLate := context.WithTimeout(t.Context(), budget)
		defer cancelLate()
		began := time.Now()
		for _, err := range claims(late, q, most, 2*most)() {
			if !errors.Is(err, errBusy) || !errors.Is(err, pinstore.ErrStore) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a claim that was not sent: %v; want %v", err, errBusy)
			}
		}
		if took := time.Since(began); took != budget {
			t.Errorf("it took %v; want %v", took, budget)
		}
		for _, answered := range sent {
			if err := answered()[0]; !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a claim that was sent: %v; want %v", err, context.DeadlineExceeded)
			}
		}
		if got, want := g.calls(), slices.Repeat([]int{1}, most); !slices.Equal(got, want) {
			t.Errorf("calls of %v ops; want %d of one", got, most)
		}
		time.Sleep(q.budget) // until the last call has ended
	})
}

// distant is a Store that is far away. Each call takes a round trip, regardless of how many calls are running.
type distant struct {
	*pinstore.Memory
	roundTrip time.Duration
	calls     atomic.Int64
}

func (d *distant) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	d.calls.Add(1)
	time.Sleep(d.roundTrip)
	return d.Memory.Swap(ctx, ops...)
}

// Even if the store is far away, an op takes at most a round trip and a tick, regardless of the rate of ops. The queue
// sends about one call per tick.
func TestQueueDistant(t *testing.T) {
	for _, rate := range []int{20, 250, 10_000} {
		synctest.Test(t, func(t *testing.T) {
			d := &distant{Memory: pinstore.NewMemory(), roundTrip: 200 * time.Millisecond}
			q := &queue{call: d.Swap, budget: time.Second}
			const seconds = 4
			var wait sync.WaitGroup
			var slowest atomic.Int64
			for i := range rate * seconds {
				wait.Go(func() {
					asked := time.Now()
					if res := q.swap(t.Context(), pinstore.Op{Room: fmt.Sprint(i)}); res.Err != nil {
						t.Error(res.Err)
					}
					took := int64(time.Since(asked))
					for now := slowest.Load(); took > now && !slowest.CompareAndSwap(now, took); now = slowest.Load() {
					}
				})
				time.Sleep(time.Second / time.Duration(rate))
			}
			wait.Wait()
			if got := time.Duration(slowest.Load()); got > d.roundTrip+tick {
				t.Errorf("%d ops a second: the slowest took %v", rate, got)
			}
			if calls := d.calls.Load(); calls > int64(seconds*time.Second/tick)+2*abreast+int64(d.roundTrip/tick) {
				t.Errorf("%d ops a second: %d calls in %d s", rate, calls, seconds)
			}
			time.Sleep(tick)
			synctest.Wait()
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.running != 0 || len(q.waiting) != 0 || q.ticking {
				t.Errorf("%d calls are running, %d ops wait, ticking: %v", q.running, len(q.waiting), q.ticking)
			}
		})
	}
}

// If a caller gives up, the other callers that share its call still get their answers.
func TestQueueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newGated()
		first := claims(t.Context(), q, 0, abreast)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		quitter := claims(ctx, q, abreast, abreast+1)
		synctest.Wait()
		patient := claims(t.Context(), q, abreast+1, abreast+3)
		synctest.Wait()
		g.gate <- struct{}{} // the next call begins with the ops of all three callers
		synctest.Wait()
		cancel()
		if errs := quitter(); !errors.Is(errs[0], context.Canceled) {
			t.Errorf("who gives up: %v", errs)
		}
		for range abreast {
			g.gate <- struct{}{}
		}
		if err := errors.Join(append(first(), patient()...)...); err != nil {
			t.Error(err)
		}
	})
}

// An op with a limit gets its own call, because a store supports limits only for single ops.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newGated()
		first := claims(t.Context(), q, 0, abreast)
		synctest.Wait()
		limited := make(chan pinstore.Result, 1)
		go func() {
			limited <- q.swap(t.Context(), pinstore.Op{
				Room: "limited", TTL: time.Hour, Limit: 1, Units: 2, Window: time.Minute,
				Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: "n", Number: 1}},
			})
		}()
		synctest.Wait()
		if got := len(g.calls()); got != abreast+1 {
			t.Errorf("%d calls; want %d", got, abreast+1)
		}
		for range abreast + 1 {
			g.gate <- struct{}{}
		}
		if res := <-limited; !res.Full {
			t.Errorf("%+v; want a full node", res)
		}
		if err := errors.Join(first()...); err != nil {
			t.Error(err)
		}
	})
}

// Ops on the same room never share a call, so a store may rely on that. Reads of the same room share an op.
func TestQueueDistinctRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := newGated()
		first := claims(t.Context(), q, 0, abreast)
		synctest.Wait()
		at := lease.Incarnation{Node: "n", Number: 1}
		claim := pinstore.Op{Room: "room", TTL: time.Hour, Set: pinstore.Pin{Incarnation: at}}
		results := make([]pinstore.Result, 7)
		for i, op := range []pinstore.Op{{Room: "room"}, claim, {Room: "room"}, claim, {Room: "another"}, {Room: "room"}, claim} {
			go func() { results[i] = q.swap(t.Context(), op) }()
			synctest.Wait()
		}
		for range abreast + 4 {
			g.gate <- struct{}{}
			synctest.Wait()
		}
		if err := errors.Join(first()...); err != nil {
			t.Error(err)
		}
		if got, want := g.calls(), append(slices.Repeat([]int{1}, abreast), 2, 1, 1, 1); !slices.Equal(got, want) {
			t.Errorf("calls of %v ops; want %v", got, want)
		}
		done := 0
		for i, res := range results {
			if res.Err != nil || (i == 1 || i == 3 || i == 6) && res.Pin.Incarnation != at {
				t.Errorf("op %d: %+v", i, res)
			}
			if res.Done && res.Pin.Incarnation == at {
				done++
			}
		}
		if done != 1 {
			t.Errorf("%d claims of one room were done", done)
		}
	})
}

// third is a store that hangs for every third partition. As in package redisstore, a call hangs if one of its ops
// hangs.
type third struct{ *pinstore.Memory }

func (s third) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if !slices.ContainsFunc(ops, func(op pinstore.Op) bool { return op.Partition%3 == 0 }) {
		time.Sleep(time.Millisecond)
		return s.Memory.Swap(ctx, ops...)
	}
	<-ctx.Done()
	results := make([]pinstore.Result, len(ops))
	for i := range results {
		results[i].Err = storeError(ctx.Err())
	}
	return results
}

// One shard of the store hangs. The callers of the other shards get their answers, except for the first few.
func TestQueueShardHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(third{pinstore.NewMemory()}, budget, slog.New(slog.DiscardHandler), nil)
		var answered, all atomic.Int64
		var wait sync.WaitGroup
		for i := range 2000 {
			wait.Go(func() {
				ctx, cancel := c.Bounded(t.Context())
				defer cancel()
				op := pinstore.Op{Room: fmt.Sprint(i), Partition: placement.Partition(i * 7 % 1024)}
				res := c.Swap(ctx, op)
				if op.Partition%3 == 0 {
					return
				}
				if all.Add(1); res.Err == nil {
					answered.Add(1)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		wait.Wait()
		if answered.Load() < all.Load()*3/4 {
			t.Errorf("%d of %d ops in the shards that answer were answered", answered.Load(), all.Load())
		}
	})
}

// If earlier calls of the same join have used up most of the budget, a timeout of the next call proves nothing. The
// breaker stays closed, and ops still share calls. If no time is left, the call is not sent.
func TestShortCallsProveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Memory: pinstore.NewMemory(), roundTrip: budget / 2}
		c := New(heeding{d}, budget, slog.New(slog.DiscardHandler), nil)
		for range 2 * tripAfter {
			ctx, cancel := context.WithTimeout(t.Context(), budget/3)
			if res := c.Swap(ctx, pinstore.Op{Room: "r"}); !errors.Is(res.Err, context.DeadlineExceeded) {
				t.Errorf("with a third of the budget: %v", res.Err)
			}
			if res := c.Swap(ctx, pinstore.Op{Room: "r"}); !errors.Is(res.Err, errBusy) || errors.Is(res.Err, context.DeadlineExceeded) {
				t.Errorf("after the budget: %v", res.Err)
			}
			cancel()
		}
		if s := c.Stats(); s.Breaker != "closed" || d.calls.Load() != 2*tripAfter || !c.queue.apart.IsZero() {
			t.Errorf("%d calls, breaker %s, apart until %v", d.calls.Load(), s.Breaker, c.queue.apart)
		}
		for range tripAfter { // calls that had their whole budget do open the breaker
			d.roundTrip = 2 * budget
			ctx, cancel := c.Bounded(t.Context())
			c.Swap(ctx, pinstore.Op{Room: "r"})
			cancel()
		}
		if s := c.Stats(); s.Breaker != "open" {
			t.Errorf("breaker %s", s.Breaker)
		}
	})
}

// heeding is a store whose calls end when their context ends.
type heeding struct{ *distant }

func (h heeding) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	h.calls.Add(1)
	select {
	case <-time.After(h.roundTrip):
		return h.Memory.Swap(ctx, ops...)
	case <-ctx.Done():
		return slices.Repeat([]pinstore.Result{{Err: storeError(ctx.Err())}}, len(ops))
	}
}
