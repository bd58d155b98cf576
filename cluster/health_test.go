package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// application is a program with a health check. It records if two checks run at the same time.
type application struct {
	health   atomic.Pointer[func(context.Context) error]
	running  atomic.Int64
	overlaps atomic.Bool
	calls    atomic.Int64
}

func (p *application) become(health func(context.Context) error) { p.health.Store(&health) }

func (p *application) check(ctx context.Context) error {
	p.calls.Add(1)
	if p.running.Add(1) > 1 {
		p.overlaps.Store(true)
	}
	defer p.running.Add(-1)
	return (*p.health.Load())(ctx)
}

func healthy(context.Context) error { return nil }

// A node with an unhealthy application owns nothing, and owns partitions again when the application is healthy. However
// the check fails, the agent's loop keeps running, and no two checks run at the same time.
func TestHealthChecks(t *testing.T) {
	for name, sick := range map[string]func(context.Context) error{
		"fails":          func(context.Context) error { return errors.New("no disk") },
		"takes too long": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails late":     func(context.Context) error { time.Sleep(2500 * time.Millisecond); return errors.New("no disk") },
		"hangs":          func(context.Context) error { time.Sleep(time.Minute); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(application)
				p.become(healthy)
				c := clustertest.New(t, clustertest.Options{})
				c.Start("a", "c")
				c.StartWith("b", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Health = p.check }))
				c.WaitAgreed(3 * time.Second)
				b := c.Agent("b")
				if len(b.Owned()) == 0 {
					t.Fatal("a healthy node owns nothing")
				}
				p.become(sick)
				time.Sleep(10 * time.Second)
				s := b.Snapshot()
				_, unhealthy := s.Held(cluster.CauseUnhealthy)
				if !unhealthy || s.Self.State != lease.Draining || len(b.Owned()) > 0 || !sees(c, "a", "b") || s.Stats.HealthFailures < 2 {
					t.Errorf("holds %v, %v, owns %d, after %d failures", s.Holds, s.Self.State, len(b.Owned()), s.Stats.HealthFailures)
				}
				if m, _ := c.Agent("a").Snapshot().Member("b"); !m.Unhealthy {
					t.Errorf("another node does not see that b is unhealthy: %+v", m)
				}
				if age := b.LoopAge(); age > time.Second {
					t.Errorf("the loop stood still for %v", age)
				}
				p.become(healthy)
				time.Sleep(70 * time.Second)
				c.WaitAgreed(0)
				if m, _ := c.Agent("a").Snapshot().Member("b"); len(b.Snapshot().Holds) > 0 || len(b.Owned()) == 0 || m.Unhealthy {
					t.Errorf("holds %v, owns %d", b.Snapshot().Holds, len(b.Owned()))
				}
				if p.overlaps.Load() {
					t.Error("two checks ran at a time")
				}
			})
		})
	}
}

// Close does not wait for a check that hangs.
func TestCloseWithAHangingCheck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	cfg := local("a")
	cfg.Health = func(context.Context) error { <-release; return nil }
	a := startAgent(t, cfg)
	began := time.Now()
	if err := a.Close(); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// An application next to the agent reports that it is healthy. If the next report does not come in time, the node owns
// nothing until two reports have come in time.
func TestReportHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		a := c.Agent("n00")
		report := func(ttl time.Duration) {
			if err := a.ReportHealth(ttl); err != nil {
				t.Error(err)
			}
		}
		for range 5 {
			report(2 * time.Second)
			time.Sleep(time.Second)
		}
		if len(a.Owned()) == 0 {
			t.Fatal("an application that reports in time is unhealthy")
		}
		time.Sleep(2 * time.Second)
		if h, _ := a.Snapshot().Held(cluster.CauseUnhealthy); h.Reason != "no report for 2s" || len(a.Owned()) > 0 {
			t.Errorf("unhealthy because of %q, owns %d", h.Reason, len(a.Owned()))
		}
		if err := a.Undrain(t.Context()); err != nil { // does not wait until the application is healthy
			t.Error(err)
		}
		report(2 * time.Second)
		time.Sleep(time.Second)
		if len(a.Owned()) > 0 {
			t.Error("one report made the application healthy")
		}
		report(0)
		time.Sleep(time.Second) // longer than the debounce
		c.WaitAgreed(time.Second)
		if len(a.Owned()) == 0 {
			t.Error("an application that reports no more is unhealthy")
		}
		for _, ttl := range []time.Duration{-1, cluster.MinHealthTTL - 1, cluster.MaxHealthTTL + 1} {
			if err := a.ReportHealth(ttl); err == nil {
				t.Errorf("a report for %v was accepted", ttl)
			}
		}
	})
}

// Cordon and Uncordon return when all members have followed.
func TestCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, clustertest.Options{})
		a, b := c.Agent("n00"), c.Agent("n01")
		cordon := func(id lease.NodeID, d time.Duration, want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := a.Uncordon(ctx, id)
			if d > 0 {
				err = a.Cordon(ctx, id, d, "gray")
			}
			if !errors.Is(err, want) {
				t.Errorf("cordon %s for %v: %v, want %v", id, d, err, want)
			}
		}
		cordon("n01", time.Minute, nil)
		if len(b.Owned()) > 0 {
			t.Errorf("the cordoned node owns %d partitions", len(b.Owned()))
		}
		c.WaitAgreed(0)
		for _, id := range c.IDs() {
			s := c.Agent(id).Snapshot()
			e, cordoned := s.CordonOf("n01")
			if left := time.Until(e.Until); !cordoned || len(s.Cordons) != 1 || e.Reason != "gray" || left < 58*time.Second || left > time.Minute {
				t.Errorf("%s knows %+v, which ends in %v", id, s.Cordons, time.Until(e.Until))
			}
		}
		if err := b.Undrain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.SetWeight(50); err != nil {
			t.Error(err)
		}
		cordon("n01", 0, nil)
		c.WaitAgreed(0)
		if len(b.Owned()) == 0 {
			t.Error("the end of the cordon came before the table with the node")
		}
		cordon("n09", time.Minute, cluster.ErrNotMember)
		for _, id := range []lease.NodeID{"n01", "n02", "n03", "n04"} {
			cordon(id, time.Minute, nil)
		}
		cordon("n00", time.Minute, cluster.ErrLastCandidate)
		if err := a.Cordon(t.Context(), "n01", 25*time.Hour, ""); err == nil || !strings.Contains(err.Error(), "24h") {
			t.Errorf("for more than a day: %v", err)
		}
	})
}

func ExampleAgent_Cordon() {
	ctx := context.Background()
	start := func(id string, seeds ...string) *cluster.Agent {
		a, err := cluster.Start(ctx, cluster.Config{ID: id, Bind: "127.0.0.1:0", Join: seeds, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			panic(err)
		}
		return a
	}
	a := start("a")
	defer a.Close()
	b := start("b", a.Addr())
	defer b.Close()
	<-b.Ready()

	if err := a.Cordon(ctx, "b", 10*time.Minute, "disk errors"); err != nil {
		panic(err)
	}
	fmt.Println("b owns", len(b.Owned()))
	// Output: b owns 0
}
