package storeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// scripted is a Store whose calls fail as the test specifies.
type scripted struct {
	*pinstore.Memory
	calls int
	fail  func(ctx context.Context, call int) error
}

func (s *scripted) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	s.calls++
	err := s.fail(ctx, s.calls)
	if err == nil {
		return s.Memory.Swap(ctx, ops...)
	}
	results := make([]pinstore.Result, len(ops))
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

// storeError wraps err like a Store does.
func storeError(err error) error { return fmt.Errorf("%w: %w", pinstore.ErrStore, err) }

func clientOf(fail func(ctx context.Context, call int) error) (*Client, *scripted) {
	s := &scripted{Memory: pinstore.NewMemory(), fail: fail}
	return New(s, 150*time.Millisecond, slog.New(slog.DiscardHandler), nil), s
}

// If the store hangs, three calls use up their budget. After that, only one call per second reaches the store.
func TestStoreClientBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		c, s := clientOf(func(ctx context.Context, _ int) error {
			if hangs {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		swap := func() (pinstore.Result, time.Duration) {
			ctx, cancel := c.Bounded(t.Context())
			defer cancel()
			began := time.Now()
			return c.Swap(ctx, pinstore.Op{Room: "r"}), time.Since(began)
		}
		for i := range 10 {
			res, took := swap()
			if want := map[bool]time.Duration{true: c.budget}[i < tripAfter]; !errors.Is(res.Err, pinstore.ErrStore) || took != want {
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
		res, _ := swap()
		if stats := c.Stats(); res.Err != nil || stats.Doubt || stats.Breaker != "closed" || stats.Took.Calls != tripAfter+2 {
			t.Errorf("when the store is back: %v, %+v", res.Err, c.Stats())
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
	ops := make([]pinstore.Op, 3*BulkOps-1)
	for i := range ops {
		ops[i] = pinstore.Op{Room: fmt.Sprint(i)}
	}
	results := c.SwapAll(t.Context(), ops, nil)
	if len(results) != len(ops) || s.calls != 2 {
		t.Fatalf("%d results for %d ops, %d calls", len(results), len(ops), s.calls)
	}
	for i, res := range results {
		if (res.Err != nil) != (i >= BulkOps) {
			t.Fatalf("op %d: %v", i, res.Err)
		}
	}
}

func TestStoreClientAway(t *testing.T) {
	for problem, down := range map[string]error{
		"down":                     errors.New("down"),
		"connection reset by peer": &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"dial tcp 10.0.0.1:6379: i/o timeout": fmt.Errorf("%w: %w", context.DeadlineExceeded,
			&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379}, Err: os.ErrDeadlineExceeded}),
		"not within 150ms": context.DeadlineExceeded,
	} {
		c, _ := clientOf(func(_ context.Context, call int) error {
			if call <= awayAfter {
				return down
			}
			return nil
		})
		for call := 1; call <= awayAfter+2; call++ {
			_, back, err := c.Heartbeat(t.Context(), lease.Incarnation{}, time.Second, nil)
			if (err != nil) != (call <= awayAfter) || back != (call == awayAfter+1) || c.away.Load() != (call == awayAfter) {
				t.Errorf("heartbeat %d: %v, back %v, away %v", call, err, back, c.away.Load())
			}
			if got, want := c.Stats().Problem, map[bool]string{true: problem}[call == awayAfter]; got != want {
				t.Errorf("heartbeat %d: the problem is %q, want %q", call, got, want)
			}
		}
	}
}

// A store is considered far away if even the shortest of the latest heartbeats takes more than a third of the budget. A
// single slow heartbeat is not enough.
func TestStoreClientFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := time.Duration(0)
		c, _ := clientOf(func(context.Context, int) error { time.Sleep(took); return nil })
		var lines strings.Builder
		c.log = slog.New(slog.NewTextHandler(&lines, nil))
		for i, step := range []struct {
			took  time.Duration
			lines string // so far
		}{
			{140, ""}, {10, ""}, {140, ""}, {140, ""}, {60, "far"}, {60, "far"}, {45, "far"}, {30, "far near"}, {140, "far near"},
		} {
			took = step.took * time.Millisecond
			if _, _, err := c.Heartbeat(t.Context(), lease.Incarnation{}, time.Second, nil); err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(lines.String()) {
				got = append(got, map[bool]string{true: "far", false: "near"}[strings.Contains(line, "level=WARN")])
			}
			if strings.Join(got, " ") != step.lines {
				t.Errorf("after heartbeat %d the log says %q, want %q", i, got, step.lines)
			}
		}
		if got := c.Stats().RoundTrip; got != 30*time.Millisecond {
			t.Errorf("the round trip is %v", got)
		}
	})
}
