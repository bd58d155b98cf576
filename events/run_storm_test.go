package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// guard fails the test if two runs of one partition overlap.
type guard [8]struct {
	running, starts atomic.Int32
	returnedEarly   atomic.Bool // the last run returned though the partition was owned
}

func (g *guard) enter(t *testing.T, p placement.Partition) (leave func()) {
	t.Helper()
	g[p].starts.Add(1)
	if n := g[p].running.Add(1); n != 1 {
		t.Errorf("%d runs of partition %d at once", n, p)
	}
	g[p].returnedEarly.Store(false)
	return func() { g[p].running.Add(-1) }
}

// During a storm of changes no two runs of a partition overlap. Afterwards exactly the
// owned partitions run.
func TestRunOwnedStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		var g guard
		ended := make(chan error, 1)
		go func() {
			ended <- RunOwned(t.Context(), &feed, func(ctx context.Context, p placement.Partition) {
				defer g.enter(t, p)()
				rng := rand.New(rand.NewPCG(uint64(p), uint64(g[p].starts.Load())))
				var early <-chan time.Time
				if rng.IntN(3) == 0 {
					early = time.After(time.Duration(rng.IntN(100)) * time.Millisecond)
				}
				select {
				case <-ctx.Done():
				case <-early:
					g[p].returnedEarly.Store(ctx.Err() == nil)
				}
				time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			})
		}()
		rng := rand.New(rand.NewPCG(5, 0))
		var s *State
		for range 20 { // with a pause after each
			for range 200 {
				s = step{
					owners: []string{"aabbccdd", "aaaabbbb", "bbbbaaaa", "abababab", "aaaaaaaa"}[rng.IntN(5)],
					fenced: rng.IntN(8) == 0,
				}.next(t, s)
				feed.Publish(s)
				time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
			}
			time.Sleep(time.Second) // released runs and early ones have returned
			synctest.Wait()
			for p := range placement.Partition(8) {
				runs, want := g[p].running.Load() == 1, s.Owns(p) && !g[p].returnedEarly.Load()
				if runs != want {
					t.Errorf("partition %d runs: %v, want %v (owned: %v)", p, runs, want, s.Owns(p))
				}
			}
		}
		feed.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("RunOwned: %v, want ErrClosed", err)
		}
		for p := range g {
			if n := g[p].starts.Load(); n < 100 || g[p].running.Load() != 0 {
				t.Errorf("partition %d: %d runs, %d of them still running", p, n, g[p].running.Load())
			}
		}
	})
}

// The same on real threads, with runs that return at every possible moment.
func TestRunOwnedOnThreads(t *testing.T) {
	for _, end := range []string{"closed", "cancelled"} {
		t.Run(end, func(t *testing.T) {
			var feed Feed
			var g guard
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- RunOwned(ctx, &feed, func(ctx context.Context, p placement.Partition) {
					defer g.enter(t, p)()
					for i := range rand.IntN(200) {
						if i%16 == 0 && ctx.Err() != nil {
							return
						}
						runtime.Gosched()
					}
					if rand.IntN(4) > 0 {
						<-ctx.Done()
					}
				})
			}()
			if end == "cancelled" {
				time.AfterFunc(time.Millisecond, cancel)
			}
			storm(t, &feed, rand.New(rand.NewPCG(6, 0)), 300, runtime.Gosched)
			if err := <-ended; !errors.Is(err, ErrClosed) && ctx.Err() == nil {
				t.Errorf("RunOwned: %v, want ErrClosed", err)
			}
			for p := range g {
				if n := g[p].running.Load(); n != 0 {
					t.Errorf("%d runs of partition %d continue after RunOwned has returned", n, p)
				}
			}
		})
	}
}
