package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// With handoff, Drain waits for the runs of this node, and a run that calls Drain waits for itself. Drain and Leave
// return, and say so.
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

// Without handoff Drain does not wait for runs, and one that calls it gets its answer.
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

// A run that ignores its end holds a drain up for the bound, and the error names its partition.
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
