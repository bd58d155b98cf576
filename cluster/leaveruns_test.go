package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// The program of the README, with a clean-up of 3 s in each partition: on real sockets, all are over when
// Leave returns.
func TestLeaveWaitsForCleanUps(t *testing.T) {
	t.Parallel()
	start := func(id string, seeds ...string) *cluster.Agent {
		agent, err := cluster.Start(t.Context(), cluster.Config{
			ID: id, Bind: "127.0.0.1:0", Join: seeds, LeaseTTL: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close() })
		<-agent.Ready()
		return agent
	}
	other := start("other")
	for name, end := range map[string]func(stop func()){
		"leave alone":                 func(func()) {},
		"the context of RunOwned too": func(stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			var begun, over atomic.Int64
			owned := func() int {
				agent := start("leaves", other.Addr())
				defer func() {
					if err := agent.Leave(context.Background()); err != nil {
						t.Error(err)
					}
				}()
				ctx, stop := context.WithCancel(t.Context())
				defer end(stop)
				go func() {
					_ = agent.RunOwned(ctx, func(owned context.Context, _ placement.Partition) {
						begun.Add(1)
						<-owned.Done()
						time.Sleep(3 * time.Second) // the clean-up
						over.Add(1)
					})
				}()
				for agent.WaitConverged(t.Context()) == nil && (len(agent.Owned()) == 0 || begun.Load() < int64(len(agent.Owned()))) {
					time.Sleep(time.Millisecond)
				}
				return len(agent.Owned())
			}()
			if n := over.Load(); owned == 0 || n != int64(owned) {
				t.Errorf("Leave has returned after %d of %d clean-ups", n, owned)
			}
		})
	}
}

// Leave waits for the runs of all calls of RunOwned, and the node stays a member until then.
func TestLeaveAfterTheLastRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 16 }})
		agent, other := c.Agent("n00"), c.Agent("n01")
		const longest = 15 * time.Second // more than a LeaseTTL
		var last atomic.Int64
		var wait sync.WaitGroup
		for _, cleanUp := range []time.Duration{time.Second, longest} {
			wait.Go(func() {
				_ = agent.RunOwned(t.Context(), func(ctx context.Context, _ placement.Partition) {
					<-ctx.Done()
					time.Sleep(cleanUp)
					if _, member := other.Member("n00"); !member {
						t.Error("the node has left before the clean-up was over")
					}
					last.Store(time.Now().UnixNano())
				})
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := agent.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < longest || took > longest+3*time.Second {
			t.Errorf("it took %v", took)
		}
		wait.Wait()
		if time.Since(time.Unix(0, last.Load())) > 3*time.Second || c.Agent("n01").WaitConverged(t.Context()) != nil {
			t.Error("the last clean-up ended long before the leave")
		}
		if _, member := other.Member("n00"); member {
			t.Error("the node is still a member")
		}
	})
}

// The wait for runs is bounded: by the context, and by a documented time. Leave leaves nevertheless, and
// names a partition.
func TestLeaveWithARunThatHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		limit       time.Duration // of the context
		least, most time.Duration
		want        error
	}{
		"no limit": {time.Hour, cluster.MaxLeaveWait, cluster.MaxLeaveWait + 3*time.Second, context.DeadlineExceeded},
		"a limit":  {5 * time.Second, 5 * time.Second, 6 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 16 }})
				agent, other := c.Agent("n00"), c.Agent("n01")
				hangs := agent.Owned()[1]
				released := make(chan struct{})
				go func() {
					_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
						<-ctx.Done()
						if p == hangs {
							<-released
						}
					})
				}()
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				began := time.Now()
				err := agent.Leave(ctx)
				if took := time.Since(began); took < tt.least || took > tt.most {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("such as %d", hangs)) {
					t.Errorf("%v; partition %d hangs", err, hangs)
				}
				time.Sleep(time.Second)
				if _, member := other.Member("n00"); member {
					t.Error("the node is still a member")
				}
				close(released)
			})
		})
	}
}

// A run that calls Leave waits for itself. Leave returns, and says so; the clean-ups of other partitions are
// not cut off if the run passes a context of its own.
func TestLeaveInsideARun(t *testing.T) {
	for name, tt := range map[string]struct {
		with func(run context.Context) context.Context
		want error
		most time.Duration
	}{
		"its context":          {func(run context.Context) context.Context { return run }, context.Canceled, 2 * time.Second},
		"of its context":       {limited, context.Canceled, 2 * time.Second},
		"a context of its own": {context.WithoutCancel, context.DeadlineExceeded, cluster.MaxLeaveWait + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 16 }})
				agent := c.Agent("n00")
				calls := agent.Owned()[0]
				var over atomic.Int64
				owned := len(agent.Owned())
				began, result := make(chan time.Time, 1), make(chan error, 1)
				go func() {
					_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
						if p != calls {
							<-ctx.Done()
							over.Add(1)
							return
						}
						began <- time.Now()
						result <- agent.Leave(tt.with(ctx))
					})
				}()
				err := <-result
				if took := time.Since(<-began); took > tt.most {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), "RunOwned") {
					t.Errorf("it returned %v", err)
				}
				<-agent.Done()
				if n := int(over.Load()); n != owned-1 {
					t.Errorf("%d of %d other runs have returned", n, owned-1)
				}
			})
		})
	}
}

// An agent that ended by itself has ended its runs, too. Leave waits for them all the same.
func TestLeaveAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 16 }})
		agent := c.Agent("n00")
		var over atomic.Int64
		owned := len(agent.Owned())
		go func() {
			_ = agent.RunOwned(t.Context(), func(ctx context.Context, _ placement.Partition) {
				<-ctx.Done()
				time.Sleep(3 * time.Second)
				over.Add(1)
			})
		}()
		time.Sleep(time.Second)
		_ = agent.Close()
		if err := agent.Leave(t.Context()); !errors.Is(err, cluster.ErrClosed) {
			t.Error(err)
		}
		if n := int(over.Load()); n != owned {
			t.Errorf("%d of %d clean-ups are over", n, owned)
		}
	})
}

// Leave calls the functions of BeforeLeave while the node is a member that owns nothing, the latest one first.
func TestBeforeLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{})
		agent, other := c.Agent("n00"), c.Agent("n01")
		var called []string
		wrong := errors.New("wrong")
		register := func(name string, err error) (cancel func()) {
			return agent.BeforeLeave(func() error {
				called = append(called, name)
				time.Sleep(time.Second)
				if _, member := other.Member("n00"); !member || len(agent.Owned()) > 0 {
					t.Errorf("%s: member %v, owns %d", name, member, len(agent.Owned()))
				}
				return err
			})
		}
		var cancel func()
		register("first", errors.New("another one"))
		register("second", nil)()
		cancel = agent.BeforeLeave(func() error { cancel(); return wrong })
		if err := agent.Leave(t.Context()); !errors.Is(err, wrong) {
			t.Errorf("Leave returned %v", err)
		}
		if err := agent.Leave(t.Context()); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("the second Leave returned %v", err)
		}
		if fmt.Sprint(called) != "[first]" {
			t.Errorf("called: %v", called)
		}
	})
}

// A function of BeforeLeave that panics is the error of Leave. The other functions run, and the node leaves.
func TestBeforeLeavePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := started(t, 2, clustertest.Options{Config: func(cfg *cluster.Config) {
			if cfg.ID == "n00" {
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			}
		}})
		agent, other := c.Agent("n00"), c.Agent("n01")
		called := false
		agent.BeforeLeave(func() error { called = true; return nil })
		agent.BeforeLeave(func() error { panic(io.ErrUnexpectedEOF) })
		if err := agent.Leave(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || !contains(err, "BeforeLeave", "panic") {
			t.Errorf("Leave returned %v", err)
		}
		if !called {
			t.Error("the function that was registered earlier was not called")
		}
		if _, member := other.Member("n00"); member {
			t.Error("the node is still a member")
		}
		text := log.String()
		if !strings.Contains(text, "level=ERROR msg=\"function of BeforeLeave panicked\"") || !strings.Contains(text, "leaveruns_test.go") {
			t.Errorf("no line with the stack in the log:\n%s", text)
		}
	})
}

// The leave of a member that owns nothing is news at once: rooms may be pinned to it.
func TestLeaveOfADrainedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const debounce = time.Second
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Debounce = debounce }})
		c.Start(ids(3)...)
		c.WaitAgreed(10 * time.Second)
		agent, other := c.Agent("n00"), c.Agent("n01")
		if err := agent.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		left := make(chan time.Time, 1)
		go func() {
			for b := range other.Watch(t.Context()) {
				if len(b.Left) > 0 {
					left <- time.Now()
					return
				}
			}
		}()
		began := time.Now()
		c.Leave("n00")
		if took := (<-left).Sub(began); took > debounce/2 {
			t.Errorf("news after %v", took)
		}
	})
}

// A function of BeforeLeave that calls Leave, or hangs, does not keep the node from leaving.
func TestBeforeLeaveHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, clustertest.Options{})
		agent, other := c.Agent("n00"), c.Agent("n01")
		inner := make(chan error, 1)
		agent.BeforeLeave(func() error { err := agent.Leave(t.Context()); inner <- err; return err })
		began := time.Now()
		if err := agent.Leave(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-inner; err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, member := other.Member("n00"); member {
			t.Error("the node is still a member")
		}
	})
}
