package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// This is the program of the README on real sockets. Each partition's function needs 3 s to clean up, and all of them
// have returned when Leave returns.
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

// Leave waits for the runs of all calls of RunOwned, and the node remains a member until they have returned.
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

// Leave waits for runs until its context ends, and no longer than a documented time. Then the node leaves anyway, and
// the error names a partition.
func TestLeaveWithARunThatHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		limit       time.Duration // limit of the context
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

// A run that calls Leave would wait for itself. So Leave returns with an error that says so. If the run passes its own
// context, Leave does not cut off the clean-ups of other partitions.
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
						time.Sleep(time.Second) // the other runs begin
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
				synctest.Wait() // if its context has ended, Leave does not wait for the other runs
				if n := int(over.Load()); n != owned-1 {
					t.Errorf("%d of %d other runs have returned", n, owned-1)
				}
			})
		})
	}
}

// Close has ended the agent and its runs. Leave still waits until the runs have returned.
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

// Leave calls the functions registered with BeforeLeave while the node is a member that owns nothing, beginning with
// the latest.
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

// If a BeforeLeave function panics, Leave returns the panic as an error. The other functions run, and the node leaves.
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
		if !strings.Contains(text, "level=ERROR msg=\"function of BeforeLeave panicked\"") || !strings.Contains(text, "lifecycle_test.go") {
			t.Errorf("no line with the stack in the log:\n%s", text)
		}
	})
}

// When a member that owns nothing leaves, watchers learn of it without the debounce, because rooms may be pinned to
// that member.
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

// The node leaves even if a BeforeLeave function calls Leave, or hangs.
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

// With handoff, Drain waits for the node's runs, so a run that calls Drain would wait for itself. Drain and Leave
// return with an error that says so.
func TestDrainInsideARun(t *testing.T) {
	const bound = 10 * time.Second
	drain, leave := (*cluster.Agent).Drain, (*cluster.Agent).Leave
	for name, tt := range map[string]struct {
		call func(*cluster.Agent, context.Context) error
		with func(run context.Context) context.Context
		want error
		most time.Duration
	}{
		"drain, its context":          {drain, func(run context.Context) context.Context { return run }, context.Canceled, time.Second},
		"drain, of its context":       {drain, limited, context.Canceled, time.Second},
		"drain, a context of its own": {drain, context.WithoutCancel, context.DeadlineExceeded, bound + 2*time.Second},
		"leave, its context":          {leave, func(run context.Context) context.Context { return run }, context.Canceled, time.Second},
		"leave, a context of its own": {leave, context.WithoutCancel, context.DeadlineExceeded, bound + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions, cfg.Handoff = 16, bound }})
				agent := c.Agent("n00")
				calls := agent.Owned()[0]
				began, result := make(chan time.Time, 1), make(chan error, 1)
				go func() {
					_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
						if p != calls {
							<-ctx.Done()
							return
						}
						began <- time.Now()
						result <- tt.call(agent, tt.with(ctx))
					})
				}()
				var err error
				select {
				case err = <-result:
				case <-time.After(10 * bound):
					t.Fatal("it has not returned")
				}
				if took := time.Since(<-began); took > tt.most {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), "RunOwned") {
					t.Errorf("it returned %v", err)
				}
				time.Sleep(time.Second)
				if len(agent.Owned()) > 0 {
					t.Error("the node still owns partitions")
				}
			})
		})
	}
}

func limited(run context.Context) context.Context {
	ctx, cancel := context.WithTimeout(run, time.Hour)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Without handoff, Drain does not wait for runs, so a run can call it.
func TestDrainInsideARunWithoutHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 16 }})
		agent := c.Agent("n00")
		calls := agent.Owned()[0]
		result := make(chan error, 1)
		go func() {
			_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
				if p == calls {
					result <- agent.Drain(context.WithoutCancel(ctx))
				}
			})
		}()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// If a run does not return, Drain waits for the handoff bound. Its error names the partition.
func TestDrainWithARunThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10 * time.Second
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions, cfg.Handoff = 16, bound }})
		agent := c.Agent("n00")
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
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*bound)
		defer cancel()
		err := agent.Drain(ctx)
		took := time.Since(began)
		if took < bound || took > bound+2*time.Second || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(fmt.Sprint(err), fmt.Sprint(hangs)) {
			t.Errorf("after %v: %v; partition %d hangs", took, err, hangs)
		}
		close(released)
		time.Sleep(time.Second)
		if err := agent.Drain(ctx); err != nil {
			t.Errorf("when the run has returned: %v", err)
		}
	})
}

// DrainAt and LeaveAt change the tables of all nodes at the same moment, and return after it.
func TestDrainAndLeaveAt(t *testing.T) {
	for name, call := range map[string]func(*cluster.Agent, context.Context, time.Time) error{
		"DrainAt": (*cluster.Agent).DrainAt,
		"LeaveAt": (*cluster.Agent).LeaveAt,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 5, clustertest.Options{Loss: 0.05, Jitter: 2 * time.Millisecond})
				time.Sleep(5 * time.Second)
				switched := make(chan time.Time, 5)
				for _, id := range c.IDs() {
					go func() {
						first := true
						for b := range c.Agent(id).Watch(t.Context()) {
							if len(b.Moved) > 0 && !first {
								switched <- time.Now()
								return
							}
							first = false
						}
					}()
				}
				synctest.Wait()
				at := time.Now().Add(3 * time.Second).Round(0) // no monotonic reading, as if another program chose the moment
				agent := c.Agent("n02")
				result := make(chan error, 1)
				go func() { result <- call(agent, t.Context(), at) }()
				for range 5 {
					if late := (<-switched).Sub(at); late < -10*time.Millisecond || late > 10*time.Millisecond {
						t.Errorf("a node has switched %v after the moment", late)
					}
				}
				if err := <-result; err != nil || len(agent.Owned()) > 0 {
					t.Errorf("%v; the node owns %d partitions", err, len(agent.Owned()))
				}
				if _, member := c.Agent("n00").Member("n02"); member != (name == "DrainAt") {
					t.Errorf("the node is a member: %v", member)
				}
			})
		})
	}
}

// A planned drain happens even if the context of the DrainAt call ends first. Undrain cancels the plan. A moment too
// far in the future is refused.
func TestDrainAtTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		agent := c.Agent("n00")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := agent.DrainAt(short, time.Now().Add(5*time.Second)); !errors.Is(err, context.DeadlineExceeded) || len(agent.Owned()) == 0 {
			t.Errorf("before the moment: %v, owns %d", err, len(agent.Owned()))
		}
		time.Sleep(5 * time.Second)
		if len(agent.Owned()) > 0 {
			t.Error("the plan has ended with the call")
		}
		if err := agent.Undrain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := agent.DrainAt(short, time.Now().Add(5*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := agent.Undrain(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Second)
		if len(agent.Owned()) == 0 {
			t.Error("Undrain has not ended the plan")
		}
		for _, call := range []func(*cluster.Agent, context.Context, time.Time) error{(*cluster.Agent).DrainAt, (*cluster.Agent).LeaveAt} {
			if err := call(agent, t.Context(), time.Now().Add(cluster.MaxAhead+time.Minute)); !errors.Is(err, cluster.ErrAhead) {
				t.Error(err)
			}
		}
		if err := agent.DrainAt(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(agent.Owned()) > 0 {
			t.Errorf("a moment that is past: %v, owns %d", err, len(agent.Owned()))
		}
	})
}

// If a run does not return, DrainAt and LeaveAt wait for it until Config.Handoff after the moment, even if that is much
// longer than LeaseTTL, or until their context ends.
func TestPlannedWithLongHandoff(t *testing.T) {
	const ahead, handoff = 5 * time.Second, 30 * time.Second
	for name, tt := range map[string]struct {
		call        func(*cluster.Agent, context.Context, time.Time) error
		limit       time.Duration // limit of the context, counted from the moment
		least, most time.Duration // counted from the moment
		member      bool          // the node is a member afterwards
	}{
		"DrainAt":            {(*cluster.Agent).DrainAt, time.Hour, handoff, handoff + 2*time.Second, true},
		"DrainAt with limit": {(*cluster.Agent).DrainAt, 10 * time.Second, 10 * time.Second, 11 * time.Second, true},
		"LeaveAt":            {(*cluster.Agent).LeaveAt, time.Hour, handoff, handoff + 3*time.Second, false},
		"LeaveAt with limit": {(*cluster.Agent).LeaveAt, 10 * time.Second, 10 * time.Second, 11 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions, cfg.Handoff = 16, handoff }})
				agent := c.Agent("n00")
				hangs, released := agent.Owned()[0], make(chan struct{})
				go func() {
					_ = agent.RunOwned(t.Context(), func(ctx context.Context, p placement.Partition) {
						<-ctx.Done()
						if p == hangs {
							<-released
						}
					})
				}()
				time.Sleep(time.Second)
				at := time.Now().Add(ahead)
				ctx, cancel := context.WithDeadline(t.Context(), at.Add(tt.limit))
				defer cancel()
				err := tt.call(agent, ctx, at)
				if took := time.Since(at); took < tt.least || took > tt.most {
					t.Errorf("it returned %v after the moment, want %v to %v", took, tt.least, tt.most)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !contains(err, "has not returned: 1") {
					t.Errorf("%v; partition %d hangs", err, hangs)
				}
				time.Sleep(time.Second)
				if _, member := c.Agent("n01").Member("n00"); member != tt.member {
					t.Errorf("the node is a member: %v", member)
				}
				close(released)
			})
		})
	}
}

// weightInTable returns the node's weight in its own table, or 0 if the table does not contain the node.
func weightInTable(a *cluster.Agent) uint32 {
	s := a.Snapshot()
	for _, n := range s.Table.Nodes() {
		if n.ID == s.Self.ID {
			return n.Weight
		}
	}
	return 0
}

// When SetWeight has returned, the snapshot shows the new weight, and the table is computed with it.
func TestSetWeightReturnsWithTheTable(t *testing.T) {
	a := startAgent(t, local("a"))
	waitReady(t, a)
	for _, w := range []uint32{50, 50, 0, 300} {
		if err := a.SetWeight(w); err != nil {
			t.Fatal(err)
		}
		if own, table := a.Snapshot().Self.Weight, weightInTable(a); own != w || table != w {
			t.Errorf("after SetWeight(%d): weight %d, in the table %d", w, own, table)
		}
	}
	if err := a.SetWeight(lease.MaxWeight + 1); err == nil {
		t.Error("SetWeight accepts more than MaxWeight")
	}
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.SetWeight(70); err != nil { // no table shows the weight of a draining node
		t.Fatal(err)
	}
	if own, table := a.Snapshot().Self.Weight, weightInTable(a); own != 70 || table != 0 {
		t.Errorf("draining: weight %d, in the table %d", own, table)
	}
}

// SetLabels replaces all labels. Watchers on other members see the change, and the labels survive a fence.
func TestSetLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t,
			clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Labels = map[string]string{"role": "sfu", "gen": "1"} }})
		c.Start("a", "b", "c")
		c.WaitAgreed(3 * time.Second)
		time.Sleep(10 * time.Second)
		a, b := c.Agent("a"), c.Agent("b")
		batches := b.Subscribe(t.Context())
		<-batches
		labels := map[string]string{"role": "recorder", "tier": "gold"}
		if err := a.SetLabels(labels); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(labels)
		labels["role"] = "changed by the caller later"
		if got := a.Snapshot().Self.Labels; !maps.Equal(got, want) {
			t.Errorf("the node's own labels are %v when the call returns", got)
		}
		select {
		case batch := <-batches:
			if m, _ := b.Member("a"); !slices.Equal(batch.Changed, []lease.NodeID{"a"}) || !maps.Equal(m.Labels, want) {
				t.Errorf("%+v; labels %v", batch, m.Labels)
			}
		case <-time.After(5 * time.Second):
			t.Error("the watcher of another node learns nothing")
		}
		c.WaitAgreed(5 * time.Second)

		many := make(map[string]string)
		for i := range lease.MaxLabels + 1 {
			many[fmt.Sprint(i)] = ""
		}
		for name, bad := range map[string]map[string]string{
			"empty key": {"": "x"}, "long value": {"k": strings.Repeat("x", lease.MaxValueBytes+1)}, "too many": many, "not UTF-8": {"k": "\xff"},
		} {
			if err := a.SetLabels(bad); err == nil || !maps.Equal(a.Snapshot().Self.Labels, want) {
				t.Errorf("%s: %v; labels %v", name, err, a.Snapshot().Self.Labels)
			}
		}

		c.Pause("a")
		time.Sleep(20 * time.Second)
		c.Resume("a")
		c.WaitAgreed(20 * time.Second)
		if m, _ := b.Member("a"); !maps.Equal(m.Labels, want) {
			t.Errorf("after a fence: %v", m.Labels)
		}
		if err := a.SetLabels(nil); err != nil || len(a.Snapshot().Self.Labels) > 0 {
			t.Errorf("none: %v, %v", err, a.Snapshot().Self.Labels)
		}
	})
}
