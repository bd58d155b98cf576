package affinity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// scripted is a Store with calls that fail as the test says.
type scripted struct {
	*Memory
	calls int
	fail  func(ctx context.Context, call int) error
}

func (s *scripted) Swap(ctx context.Context, ops ...Op) []Result {
	s.calls++
	err := s.fail(ctx, s.calls)
	if err == nil {
		return s.Memory.Swap(ctx, ops...)
	}
	results := make([]Result, len(ops))
	for i := range results {
		results[i].Err = storeError(err)
	}
	return results
}

func (s *scripted) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	s.calls++
	if err := s.fail(ctx, s.calls); err != nil {
		return nil, storeError(err)
	}
	return s.Memory.Heartbeat(ctx, self, ttl, ask)
}

func clientOf(fail func(ctx context.Context, call int) error) (*storeClient, *scripted) {
	s := &scripted{Memory: NewMemory(), fail: fail}
	return newStoreClient(s, Config{Budget: 150 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}), s
}

// A hanging store costs the budget three times, then one call a second.
func TestStoreClientBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		c, s := clientOf(func(ctx context.Context, _ int) error {
			if hangs {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		swap := func() (Result, time.Duration) {
			ctx, cancel := c.bounded(t.Context())
			defer cancel()
			began := time.Now()
			return c.swap(ctx, Op{Room: "r"}), time.Since(began)
		}
		for i := range 10 {
			res, took := swap()
			if want := map[bool]time.Duration{true: c.budget}[i < tripAfter]; !errors.Is(res.Err, ErrStore) || took != want {
				t.Errorf("call %d: %v after %v, want %v", i, res.Err, took, want)
			}
		}
		time.Sleep(openTime + 1)
		swap()
		if swap(); s.calls != tripAfter+1 {
			t.Errorf("%d calls reached the store, want %d", s.calls, tripAfter+1)
		}
		hangs = false
		time.Sleep(openTime + 1)
		var stats Stats
		res, _ := swap()
		if c.stats(&stats); res.Err != nil || stats.StoreDoubt || stats.Breaker != "closed" || stats.StoreCalls != tripAfter+2 {
			t.Errorf("when the store is back: %v, %+v", res.Err, stats)
		}
	})
}

func TestStoreClientBatches(t *testing.T) {
	c, s := clientOf(func(_ context.Context, call int) error {
		if call == 2 {
			return errors.New("down")
		}
		return nil
	})
	ops := make([]Op, 3*bulkOps-1)
	for i := range ops {
		ops[i] = Op{Room: fmt.Sprint(i)}
	}
	results := c.swapAll(t.Context(), ops)
	if len(results) != len(ops) || s.calls != 2 {
		t.Fatalf("%d results for %d ops, %d calls", len(results), len(ops), s.calls)
	}
	for i, res := range results {
		if (res.Err != nil) != (i >= bulkOps) {
			t.Fatalf("op %d: %v", i, res.Err)
		}
	}
}

func TestStoreClientAway(t *testing.T) {
	c, _ := clientOf(func(_ context.Context, call int) error {
		if call <= awayAfter {
			return errors.New("down")
		}
		return nil
	})
	for call := 1; call <= awayAfter+2; call++ {
		_, back, err := c.heartbeat(t.Context(), lease.Incarnation{}, time.Second, nil)
		if (err != nil) != (call <= awayAfter) || back != (call == awayAfter+1) || c.away.Load() != (call == awayAfter) {
			t.Errorf("heartbeat %d: %v, back %v, away %v", call, err, back, c.away.Load())
		}
	}
}
