package affinity_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// callbacks contains every callback that a user can give to a Resolver. Each callback calls the resolvers,
// for example to report numbers, and records when such a call blocks.
type callbacks struct {
	mu      sync.Mutex
	called  map[string]bool
	blocked map[string]bool

	probing atomic.Bool // a probe may itself cause callbacks
	probe   func()

	// seconds of the real clock. Time in a bubble stands still while a goroutine waits for a mutex.
	seconds atomic.Int64
}

// clock counts seconds until stop is called. It is started outside of the bubble.
func (c *callbacks) clock() (stop func()) {
	ended := make(chan struct{})
	tick := time.NewTicker(time.Second)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.seconds.Add(1)
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}

// note runs the probe in a goroutine. If the probe needs a lock that its caller holds, the probe never returns.
func (c *callbacks) note(name string) {
	c.mu.Lock()
	c.called[name] = true
	probe := c.probe
	c.mu.Unlock()
	if probe == nil || !c.probing.CompareAndSwap(false, true) {
		return
	}
	var done atomic.Bool
	go func() {
		probe()
		done.Store(true)
		c.probing.Store(false)
	}()
	for began := c.seconds.Load(); c.seconds.Load() < began+20; runtime.Gosched() {
		if done.Load() {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked[name], c.probe = true, nil // one is enough
}

func (c *callbacks) cost(d affinity.Demand) int64 { c.note("Cost"); return d.Streams() }

func (c *callbacks) selects(string, affinity.Demand, *cluster.Member) bool {
	c.note("Selector")
	return true
}

func (c *callbacks) Counts(_ context.Context, rooms []string) ([]int, error) {
	c.note("Counter")
	return make([]int, len(rooms)), nil
}

func (c *callbacks) Enabled(context.Context, slog.Level) bool { return true }
func (c *callbacks) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *callbacks) WithGroup(string) slog.Handler            { return c }
func (c *callbacks) Handle(_ context.Context, r slog.Record) error {
	c.note("log: " + r.Message)
	return nil
}

func (c *callbacks) Begin(ctx context.Context, call, _ string) (context.Context, func(affinity.Assignment, error)) {
	c.note("Tracer.Begin " + call)
	return ctx, func(affinity.Assignment, error) { c.note("Tracer.Begin end") }
}

func (c *callbacks) Unasked(context.Context, error) { c.note("Tracer.Unasked") }

func (c *callbacks) Failover(ctx context.Context, _ int) (context.Context, func(int, int, error)) {
	c.note("Tracer.Failover")
	return ctx, func(int, int, error) { c.note("Tracer.Failover end") }
}

// The resolver holds no lock while it calls a user's callback. Otherwise a callback that asks for numbers
// would deadlock, and a slow callback would block every caller.
func TestCallbacksHoldNoLock(t *testing.T) {
	c := &callbacks{called: make(map[string]bool), blocked: make(map[string]bool)}
	defer c.clock()()
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		cfg := affinity.Config{Cost: c.cost, Selector: c.selects, Counter: c, Log: slog.New(c), Tracer: c, ReportLoad: true}
		f := newFleet(t, store, cfg, "a", "b", "c")
		f.host("a", "hosted", 20)
		resolvers := []*affinity.Resolver{f.rooms["a"], f.rooms["b"], f.rooms["c"]}
		probe := func() {
			for _, r := range resolvers {
				r.TakeLocks()
			}
		}
		c.mu.Lock()
		c.probe = probe
		c.mu.Unlock()

		for _, room := range names(30) {
			f.host("a", room, 8)
		}
		f.rooms["a"].Hosted()
		time.Sleep(5 * time.Second)
		store.hangs.Store(true)
		for range 30 {
			f.resolve("a", "unknown", 2)
			time.Sleep(100 * time.Millisecond)
		}
		store.hangs.Store(false)
		time.Sleep(soon)
		at := f.resolve("a", "hosted", 20).Node
		f.resolve("a", "again", 2)
		if _, err := f.rooms["a"].Move(t.Context(), "hosted", lease.NodeID(f.not(string(at)))); err != nil {
			t.Fatal(err)
		}
		f.Pause("b") // it will be fenced with all that it hosts
		time.Sleep(2 * soon)
		if _, err := f.rooms["b"].Host(t.Context(), "hosted", affinity.Demand{}); !errors.Is(err, affinity.ErrFenced) {
			t.Errorf("hosted while paused: %v", err)
		}
		f.Resume("b")
		time.Sleep(soon)

		c.mu.Lock()
		defer c.mu.Unlock()
		for name := range c.blocked {
			t.Errorf("%s runs under a lock", name)
		}
		for _, name := range []string{
			"Cost", "Selector", "Counter", "Tracer.Begin resolve", "Tracer.Begin host", "Tracer.Begin end", "Tracer.Unasked",
			"Tracer.Failover", "Tracer.Failover end", "log: store circuit breaker opened", "log: store circuit breaker closed",
			"log: store does not answer", "log: store answers again", "log: rooms failed over", "log: room moved",
			"log: hosting ended", "log: all hostings ended",
		} {
			if !c.was(name) {
				t.Errorf("%s was never called", name)
			}
		}
	})
}

func (c *callbacks) was(prefix string) bool {
	for name := range c.called {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
