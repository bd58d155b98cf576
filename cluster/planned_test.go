package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// DrainAt and LeaveAt change the tables of all nodes at one moment, and return afterwards.
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
				at := time.Now().Add(3 * time.Second).Round(0) // without a monotonic reading, as of a program that aligns its changes
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

// A plan outlives the call that made it, and Undrain ends it. A moment that is too far ahead is refused.
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

// DrainAt and LeaveAt wait for a handler that does not return for Config.Handoff after the moment, also if
// that is much longer than a LeaseTTL, or until their context ends.
func TestPlannedWithLongHandoff(t *testing.T) {
	const ahead, handoff = 5 * time.Second, 30 * time.Second
	for name, tt := range map[string]struct {
		call        func(*cluster.Agent, context.Context, time.Time) error
		limit       time.Duration // of the context, after the moment
		least, most time.Duration // after the moment
		member      bool          // afterwards
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
