package reconnect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// The client loses its node, and half a second later the room has a new node. The client connects to the new node.
func TestLost(t *testing.T) {
	seeds(t, func(t *testing.T) {
		c := newClient()
		if err := c.Follow(t.Context(), directiveTo("a", 1)); err == nil {
			t.Fatal("connected to a node that fails")
		}
		c.connect = func(_ context.Context, _ int, d reconnect.Directive) error {
			if d.To == "a" {
				return syscall.ECONNREFUSED
			}
			return nil
		}
		gone := time.Now()
		c.resolve = func(context.Context) (reconnect.Directive, error) {
			if time.Since(gone) < 500*time.Millisecond {
				return directiveTo("a", 1), nil
			}
			return directiveTo("b", 60), nil
		}
		if err := c.Lost(t.Context(), directiveTo("a", 1)); err != nil {
			t.Fatal(err)
		}
		checkGap(t, "back", time.Since(gone), 500*time.Millisecond, 750*time.Millisecond)
		c.tries = nil
		if err := c.Lost(t.Context(), directiveTo("a", 1)); err != nil || len(c.tries) != 0 {
			t.Errorf("late news of the old connection: %v, attempts at %q", err, c.to())
		}
	})
}

// If the target refuses the client, the client asks for the room's node immediately.
func TestFollowRefused(t *testing.T) {
	for _, refused := range []error{reconnect.ErrRefused, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient()
			c.connect = func(_ context.Context, _ int, d reconnect.Directive) error {
				if d.To == "b" {
					return refused
				}
				return nil
			}
			if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil || c.to() != "bx" {
				t.Errorf("%v: attempts at %q, error %v; want bx, none", refused, c.to(), err)
			}
			checkGap(t, "connected", time.Since(c.start), 0, 500*time.Millisecond)
		})
	}
}

// While an attempt hangs, the client continues to ask. An answer that names another node interrupts the attempt.
func TestLostAsksDuringAttempt(t *testing.T) {
	seeds(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(ctx context.Context, _ int, d reconnect.Directive) error {
			if d.To == "b" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		c.resolve = func(context.Context) (reconnect.Directive, error) {
			if time.Since(c.start) < time.Second {
				return directiveTo("a", 1), nil
			}
			return directiveTo("b", 2), nil
		}
		if err := c.Lost(t.Context(), directiveTo("a", 1)); err != nil || c.to() != "ab" {
			t.Fatalf("attempts at %q, error %v; want ab, none", c.to(), err)
		}
		checkGap(t, "back", time.Since(c.start), time.Second, 1250*time.Millisecond)
	})
}

// Concurrent calls wait for the same result. If the context of the call that runs the steps ends, another call runs
// them.
func TestFollowTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(ctx context.Context, _ int, _ reconnect.Directive) error {
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		first, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ends := make(chan error, 3)
		go func() { ends <- c.Follow(first, directiveTo("b", 1)) }()
		synctest.Wait()
		for range 2 {
			go func() { ends <- c.Follow(t.Context(), directiveTo("b", 1)) }()
		}
		if err := <-ends; !errors.Is(err, context.DeadlineExceeded) || time.Since(c.start) != 2*time.Second {
			t.Errorf("the first call ends with %v after %v", err, time.Since(c.start))
		}
		for range 2 {
			if err := <-ends; err != nil || c.to() != "bb" {
				t.Errorf("another call ends with %v, attempts at %q", err, c.to())
			}
		}
	})
}

// logFunc is a log handler that is called for each line.
type logFunc func()

func (logFunc) Enabled(context.Context, slog.Level) bool    { return true }
func (f logFunc) Handle(context.Context, slog.Record) error { f(); return nil }
func (f logFunc) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f logFunc) WithGroup(string) slog.Handler             { return f }

// A second call starts when the first call has finished its steps but has not returned yet. The first call must not end
// the second one.
func TestFollowReturnsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(context.Context, int, reconnect.Directive) error { return nil }
		var once sync.Once
		second := make(chan error, 1)
		c.Log = slog.New(logFunc(func() {
			once.Do(func() {
				go func() { second <- c.Follow(t.Context(), directiveTo("c", 2)) }()
				synctest.Wait() // until the second call waits for its first attempt
			})
		}))
		if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil {
			t.Fatal(err)
		}
		if err := c.Follow(t.Context(), directiveTo("d", 3)); err != nil {
			t.Errorf("the third call: %v", err)
		}
		if err := <-second; err != nil || c.to() != "bd" {
			t.Errorf("attempts at %q, error %v; want bd, none", c.to(), err)
		}
	})
}

// If Connect panics, the panic reaches the caller of Follow. The context of the step ends, and the Driver can be used
// again.
func TestFollowPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		var step context.Context
		c.connect = func(ctx context.Context, _ int, _ reconnect.Directive) error {
			step = ctx
			panic("boom")
		}
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			err := c.Follow(t.Context(), directiveTo("b", 1))
			t.Errorf("Run returns %v", err)
		}()
		if step.Err() == nil {
			t.Error("the context of the step is alive")
		}
		c.connect = func(context.Context, int, reconnect.Directive) error { return nil }
		if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil {
			t.Errorf("the next Run: %v", err)
		}
	})
}

// Connect panics when the context of the call ends. The panic still reaches the caller.
func TestFollowPanicsAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(ctx context.Context, _ int, _ reconnect.Directive) error {
			<-ctx.Done()
			panic("boom")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			t.Error(c.Follow(ctx, directiveTo("b", 1)))
		}()
		c.connect = func(context.Context, int, reconnect.Directive) error { return nil }
		if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

// If two steps panic, the caller gets the first panic, because the first panic ended the second step.
func TestFirstPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, tries, answers := make(chan struct{}), 0, 0
		r := reconnect.Driver{
			Pace: reconnect.Pace{Spread: time.Millisecond, MinAsk: time.Millisecond, MaxAsk: time.Millisecond}, Log: slog.New(slog.DiscardHandler),
			Connect: func(context.Context, reconnect.Directive) error {
				if tries++; tries == 1 {
					return reconnect.ErrRefused // so that the Driver asks while it tries again
				}
				<-asks
				panic("connect")
			},
			Resolve: func(ctx context.Context, _ string) (reconnect.Directive, error) {
				if answers++; answers == 1 {
					return directiveTo("b", 1), nil
				}
				close(asks)
				<-ctx.Done()
				panic("resolve")
			},
		}
		defer func() {
			if p := recover(); p != "connect" {
				t.Errorf("recovered %v", p)
			}
		}()
		t.Error(r.Follow(t.Context(), directiveTo("b", 1)))
	})
}

// Directives arrive concurrently, some of them while a call is about to end. The client ends up connected to the newest
// node.
func TestFollowRace(t *testing.T) {
	for range 300 {
		r := reconnect.Driver{
			Pace: reconnect.Pace{Spread: 1, MinWait: 1, MaxWait: 1}, Log: slog.New(slog.DiscardHandler),
			Resolve: func(context.Context, string) (reconnect.Directive, error) { return reconnect.Directive{}, errHandshake },
		}
		var mu sync.Mutex
		var at uint64 // epoch of the directive with which the client connected
		r.Connect = func(_ context.Context, d reconnect.Directive) error {
			mu.Lock()
			defer mu.Unlock()
			at = d.Epoch
			return nil
		}
		const last = 8
		var wg sync.WaitGroup
		for epoch := range uint64(last) {
			wg.Go(func() {
				runtime.Gosched()
				if err := r.Follow(t.Context(), directiveTo("b", epoch+1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if at != last {
			t.Fatalf("ends at epoch %d, want %d", at, last)
		}
	}
}
