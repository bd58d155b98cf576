package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// slowHandler calls wait, if it is set, before it handles a call.
type slowHandler struct {
	slog.Handler
	wait *atomic.Pointer[func()]
}

func newSlowHandler(to io.Writer) slowHandler {
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slowHandler{slog.NewTextHandler(to, options), new(atomic.Pointer[func()])}
}

func (s slowHandler) block() {
	if wait := s.wait.Load(); wait != nil {
		(*wait)()
	}
}

// Enabled implements slog.Handler.
func (s slowHandler) Enabled(ctx context.Context, level slog.Level) bool {
	s.block()
	return s.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (s slowHandler) Handle(ctx context.Context, r slog.Record) error {
	s.block()
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s slowHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowHandler{s.Handler.WithAttrs(attrs), s.wait}
}

// A slow log handler delays neither the loop nor memberlist. Log lines wait in a queue. If the queue is full, the
// oldest lines are dropped and counted. When the handler works again, it gets the newest lines.
func TestSlowLog(t *testing.T) {
	for name, wait := range map[string]func(released <-chan struct{}){
		"blocked": func(released <-chan struct{}) { <-released },
		"10 s a line": func(released <-chan struct{}) {
			select {
			case <-released:
			case <-time.After(10 * time.Second):
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out logbook
				slow := newSlowHandler(&out)
				few := func(cfg *cluster.Config) { cfg.Partitions = 8 } // this test is not about tables
				c := clustertest.New(t, clustertest.Options{Config: few})
				c.Start("n00", "n02")
				n01 := c.StartWith("n01", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Log = slog.New(slow) }))
				c.WaitAgreed(3 * time.Second)

				released := make(chan struct{})
				stand := func() { wait(released) }
				slow.wait.Store(&stand)
				written := len(out.String())
				noise(n01, 2200)
				c.Restart("n02") // memberlist logs, too
				for range 100 {
					time.Sleep(ttl / 10)
					if age := n01.LoopAge(); age > ttl/2 || !sees(c, "n00", "n01") {
						t.Fatalf("n01 turned %v ago; n00 sees it: %v", age, sees(c, "n00", "n01"))
					}
				}
				c.WaitAgreed(time.Second)
				if stats := n01.Snapshot().Stats; stats.Fences != 0 || stats.LogDropped == 0 {
					t.Errorf("n01 fenced itself %d times, and dropped %d lines", stats.Fences, stats.LogDropped)
				}

				slow.wait.Store(nil)
				close(released)
				synctest.Wait()
				lines := out.String()[written:]
				if !strings.Contains(lines, `msg="log lines dropped" node=n01 lines=`) {
					t.Errorf("no line says how many are missing:\n%.1000s", lines)
				}
				if !strings.Contains(lines, `msg="member joined" node=n01 member=n02`) {
					t.Error("the latest lines are lost")
				}
			})
		})
	}
}

// noise makes an agent log two lines n times. 2,200 times is more than the queue holds.
func noise(a *cluster.Agent, n int) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range n {
		_ = a.Drain(over)
		_ = a.Undrain(over)
	}
}

// Close waits up to a second until the handler has the last lines. If the handler is blocked for longer, Close returns
// without it, and the goroutine that waits for the handler ends later.
func TestCloseWithASlowLog(t *testing.T) {
	for blocked, written := range map[time.Duration]bool{500 * time.Millisecond: true, time.Hour: false} {
		t.Run(fmt.Sprint(blocked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out logbook
				slow := newSlowHandler(&out)
				c := clustertest.New(t, clustertest.Options{Log: slow})
				c.Start("n00")
				c.WaitAgreed(3 * time.Second)
				agent, began := c.Agent("n00"), time.Now()
				stand := func() { time.Sleep(time.Until(began.Add(blocked))) }
				slow.wait.Store(&stand)
				noise(agent, 10)
				if err := agent.Undrain(t.Context()); err != nil { // it owns everything again
					t.Error(err)
				}
				closing := time.Now()
				_ = agent.Close()
				if took := time.Since(closing); took != min(blocked-closing.Sub(began), time.Second) {
					t.Errorf("Close took %v", took)
				}
				const last = " released=1024 moved=0 partitions=1024 nodes=1 max_mean=1\n" // logged at the end
				if got := out.String(); strings.HasSuffix(got, last) != written {
					t.Errorf("want the last lines: %v; got:\n%s", written, got[max(0, len(got)-500):])
				}
				time.Sleep(blocked)
			})
		})
	}
}

// A strategy that does not return stops the loop. LoopAge shows this, lookups continue, and calls fail with ErrStalled.
// When the strategy returns, the node recovers.
func TestBlockedStrategy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		var blocked atomic.Bool
		c := clustertest.New(t, clustertest.Options{})
		c.Start("n00", "n02")
		own := c.StartWith("own", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Strategy = stopper{placement.Rendezvous(), func() {
				if blocked.Load() {
					<-released
				}
			}}
		}))
		c.WaitAgreed(3 * time.Second)
		for range 100 {
			time.Sleep(99 * time.Millisecond)
			if age := own.LoopAge(); age > ttl/2 {
				t.Fatalf("the loop did not go round for %v", age)
			}
		}
		blocked.Store(true)
		if err := c.Agent("n02").SetWeight(50); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * ttl)
		if age := own.LoopAge(); age < 19*ttl || age > 21*ttl {
			t.Errorf("LoopAge is %v", age)
		}
		if m, err := own.Place("x"); err != nil || own.IsOwner("x") || sees(c, "n00", "own") {
			t.Errorf("the lease of own ended: it places x on %v (%v), owns x: %v, n00 sees it: %v", m, err, own.IsOwner("x"), sees(c, "n00", "own"))
		}
		since := time.Now()
		for what, err := range map[string]error{
			"drain": own.Drain(t.Context()), "set weight": own.SetWeight(7), "report health": own.ReportHealth(ttl),
		} {
			if !errors.Is(err, cluster.ErrStalled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(since); took > 3*ttl {
			t.Errorf("three calls took %v", took)
		}
		blocked.Store(false)
		close(released)
		c.WaitAgreed(3 * ttl)
		if age := own.LoopAge(); age > ttl/2 {
			t.Errorf("LoopAge is %v after the strategy returned", age)
		}
	})
}

// Messages that arrive while the loop stands still are dropped and counted when the inbox is full. Then the agent
// recovers.
func TestInboxOfABlockedLoop(t *testing.T) {
	entered, released := make(chan struct{}, 1000), make(chan struct{})
	cfg := local("a")
	cfg.Strategy = stopper{placement.Rendezvous(), func() { entered <- struct{}{}; <-released }}
	a := startAgent(t, cfg)
	<-entered
	conn, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 500 {
		for range 20 { // the buffer of the socket is larger
			_, _ = conn.Write([]byte("\xf4\x05roost\x08not a message"))
		}
		<-time.After(time.Millisecond)
	}
	close(released)
	eventually(t, "a is ready, and has counted what it dropped", func() bool {
		s := a.Snapshot().Stats
		return a.Converged() && s.InboxDropped > 0 && s.VersionErrors+s.DecodeErrors+s.StaleDropped > 0
	})
}

// Close succeeds even if a log handler calls the agent, or does not return, because Close only waits for the loop and
// for a bounded time.
func TestCloseWithinALogHandler(t *testing.T) {
	for name, call := range map[string]func(*cluster.Agent) error{
		"close": (*cluster.Agent).Close,
		"leave": func(a *cluster.Agent) error { return a.Leave(context.Background()) },
		"drain": func(a *cluster.Agent) error { return a.Drain(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := newSlowHandler(io.Discard)
				c := clustertest.New(t, clustertest.Options{Log: slow, Config: func(cfg *cluster.Config) {
					cfg.HeartbeatInterval, cfg.LeaseTTL = 100*time.Millisecond, 500*time.Millisecond // shorter than Close waits for the log
				}})
				c.Start("n00")
				c.WaitAgreed(3 * time.Second)
				agent, within := c.Agent("n00"), make(chan error, 1)
				var once atomic.Bool
				back := func() {
					if once.CompareAndSwap(false, true) {
						within <- call(agent)
					}
				}
				slow.wait.Store(&back)
				_ = agent.Drain(t.Context()) // logs a line, and fails if the handler closes the agent
				select {
				case err := <-within:
					if err != nil {
						t.Errorf("in the handler: %v", err)
					}
				case <-time.After(time.Minute):
					t.Fatal("the handler was not called, or has not returned")
				}
				if err := agent.Close(); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}
