package events_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

var errCancelled = errors.New("the test cancels")

// rig calls RunOwned in a bubble and logs its runs. After a run's context has ended, the run takes windDown to return.
// If early is set, the run returns on its own after that time.
type rig struct {
	t        *testing.T
	feed     events.Feed
	state    *events.State
	cancel   context.CancelCauseFunc
	windDown time.Duration
	early    time.Duration
	log      chan string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &rig{t: t, cancel: cancel, log: make(chan string, 1000)}
	go func() {
		err := events.RunOwned(ctx, &r.feed, r.run)
		r.log <- fmt.Sprintf("all end: %v", err)
	}()
	return r
}

func (r *rig) run(ctx context.Context, p placement.Partition) {
	r.log <- fmt.Sprintf("%d starts", p)
	var returnedEarly <-chan time.Time
	if r.early > 0 {
		returnedEarly = time.After(r.early)
	}
	select {
	case <-returnedEarly:
		r.log <- fmt.Sprintf("%d is finished", p)
	case <-ctx.Done():
		r.log <- fmt.Sprintf("%d ends: %v", p, context.Cause(ctx))
		time.Sleep(r.windDown)
		r.log <- fmt.Sprintf("%d returns", p)
	}
}

func (r *rig) publish(s step) {
	r.state = s.next(r.t, r.state)
	r.feed.Publish(r.state)
}

// expect compares what was logged since the last call. Partitions run in parallel, so the order of entries at the same
// instant does not matter.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	synctest.Wait()
	var got []string
	for len(r.log) > 0 {
		got = append(got, <-r.log)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestRunOwned(t *testing.T) {
	tests := map[string]func(r *rig){
		"one run for each partition, for as long as it is owned": func(r *rig) {
			r.expect()
			r.publish(step{owners: "aab"})
			r.expect("0 starts", "1 starts")
			r.publish(step{owners: "aab", members: "a1"}) // a refresh
			r.expect()
			r.publish(step{owners: "baa"})
			r.expect("0 ends: "+events.ErrReleased.Error(), "0 returns", "2 starts")
			r.cancel(nil)
			r.expect("1 ends: context canceled", "1 returns", "2 ends: context canceled", "2 returns",
				"all end: context canceled")
		},
		"the next run waits for the last": func(r *rig) {
			r.windDown = time.Minute
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.publish(step{owners: "b"})
			r.expect("0 ends: " + events.ErrReleased.Error())
			r.publish(step{owners: "a"})
			time.Sleep(59 * time.Second)
			r.expect()
			time.Sleep(time.Second)
			r.expect("0 returns", "0 starts")
			r.feed.Close()
			time.Sleep(time.Minute)
			r.expect("0 ends: "+events.ErrClosed.Error(), "0 returns", "all end: "+events.ErrClosed.Error())
		},
		"no next run if it was lost again by then": func(r *rig) {
			r.windDown = time.Minute
			for _, owners := range []string{"a", "b", "a", "b"} {
				r.publish(step{owners: owners})
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 ends: "+events.ErrReleased.Error(), "0 returns")
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.cancel(errCancelled)
			time.Sleep(time.Minute)
			r.expect("0 ends: "+errCancelled.Error(), "0 returns", "all end: context canceled")
		},
		"many losses make one new run": func(r *rig) {
			r.windDown = time.Minute
			for _, owners := range []string{"a", "b", "a", "b", "a", "b", "a"} {
				r.publish(step{owners: owners})
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 ends: "+events.ErrReleased.Error(), "0 returns", "0 starts")
			r.feed.Close()
			time.Sleep(time.Minute)
			r.expect("0 ends: "+events.ErrClosed.Error(), "0 returns", "all end: "+events.ErrClosed.Error())
		},
		"an early return is final until the next acquisition": func(r *rig) {
			r.early = time.Minute
			r.publish(step{owners: "a"})
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 is finished")
			r.publish(step{owners: "a", members: "a1"})
			time.Sleep(time.Hour)
			r.expect()
			r.publish(step{owners: "b"})
			r.expect()
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.feed.Close()
			r.expect("0 ends: "+events.ErrClosed.Error(), "0 returns", "all end: "+events.ErrClosed.Error())
		},
		"released and closed at once": func(r *rig) {
			r.windDown = time.Minute
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.publish(step{owners: "a", fenced: true})
			r.feed.Close()
			r.expect("0 ends: " + events.ErrReleased.Error())
			time.Sleep(time.Minute)
			r.expect("0 returns", "all end: "+events.ErrClosed.Error())
		},
		"closed while a new run is due": func(r *rig) {
			r.windDown = time.Minute
			for _, owners := range []string{"a", "b", "a"} {
				r.publish(step{owners: owners})
				synctest.Wait()
			}
			r.feed.Close()
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 ends: "+events.ErrReleased.Error(), "0 returns", "all end: "+events.ErrClosed.Error())
		},
		"lost and regained unseen": func(r *rig) {
			r.publish(step{owners: "aa"})
			r.expect("0 starts", "1 starts")
			r.state = step{owners: "ba"}.next(r.t, r.state) // not published
			r.publish(step{owners: "aa"})
			r.expect("0 ends: "+events.ErrReleased.Error(), "0 returns", "0 starts")
			r.cancel(nil)
		},
		"closed before any state": func(r *rig) {
			r.feed.Close()
			r.expect("all end: " + events.ErrClosed.Error())
		},
		"cancelled before any state": func(r *rig) {
			r.cancel(nil)
			r.expect("all end: context canceled")
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newRig(t)) })
		})
	}
}

// TestRunOwnedReadsStateBeforeStart: a run that waits for the previous run reads the newest state before it starts,
// because the partition may have been lost before RunOwned was notified.
func TestRunOwnedReadsStateBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		states := chain(t, step{owners: "a"}, step{owners: "b"}, step{owners: "a"}, step{owners: "b"})
		var feed events.Feed
		starts := 0
		woundDown := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go events.RunOwned(ctx, &feed, func(ctx context.Context, _ placement.Partition) {
			starts++
			<-ctx.Done()
			<-woundDown
		})
		for _, s := range states[:3] {
			feed.Publish(s)
			synctest.Wait()
		}
		feed.PublishQuietly(states[3])
		close(woundDown)
		synctest.Wait()
		if starts != 1 {
			t.Errorf("%d runs, want 1", starts)
		}
	})
}

// lookout is a context that calls derived whenever another context is derived from it.
type lookout struct {
	context.Context
	derived func()
}

func (l lookout) Value(key any) any {
	l.derived()
	return l.Context.Value(key)
}

// TestRunOwnedReleasesFirst: the runs of released partitions are canceled before any new run starts.
func TestRunOwnedReleasesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		var old context.Context
		starts := 0
		ctx := lookout{t.Context(), func() {
			if starts++; old != nil && old.Err() == nil {
				t.Error("a run starts before the release")
			}
		}}
		s := step{owners: "ba"}.next(t, nil)
		feed.Publish(s)
		go events.RunOwned(ctx, &feed, func(ctx context.Context, p placement.Partition) {
			if p == 1 {
				old = ctx
			}
			<-ctx.Done()
		})
		synctest.Wait()
		before := starts
		feed.Publish(step{owners: "ab"}.next(t, s))
		synctest.Wait()
		if starts == before {
			t.Error("no run was started: the test checks nothing")
		}
	})
}

// TestRunOwnedEndsItsContexts: when a run returns, its context ends, even if the parent context continues.
func TestRunOwnedEndsItsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		var kept context.Context
		feed.Publish(step{owners: "a"}.next(t, nil))
		go events.RunOwned(t.Context(), &feed, func(ctx context.Context, _ placement.Partition) { kept = ctx })
		synctest.Wait()
		if kept.Err() == nil {
			t.Error("the context of a run outlives it")
		}
	})
}

// opaque is a context of a type that the context package does not know. It cancels derived contexts with a delay.
type opaque struct{ context.Context }

func (opaque) Value(any) any { return nil }

// TestRunOwnedCause: every run gets the cause of ctx, including the runs that the end of ctx reaches last.
func TestRunOwnedCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		ctx, cancel := context.WithCancel(t.Context())
		var wrong atomic.Int32
		feed.Publish(step{owners: strings.Repeat("a", 200)}.next(t, nil))
		go events.RunOwned(opaque{ctx}, &feed, func(ctx context.Context, _ placement.Partition) {
			if <-ctx.Done(); !errors.Is(context.Cause(ctx), context.Canceled) {
				wrong.Add(1)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := wrong.Load(); n > 0 {
			t.Errorf("%d runs have another cause than that of ctx", n)
		}
	})
}

// guard fails the test if two runs of one partition overlap.
type guard [8]struct {
	running, starts atomic.Int32
	returnedEarly   atomic.Bool // the last run returned although the partition was still owned
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

// TestRunOwnedStorm: while many changes are published, no two runs of a partition overlap. Afterwards, exactly the
// owned partitions run, except those whose run returned early.
func TestRunOwnedStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		var g guard
		ended := make(chan error, 1)
		go func() {
			ended <- events.RunOwned(t.Context(), &feed, func(ctx context.Context, p placement.Partition) {
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
		var s *events.State
		for range 20 { // with a pause after each
			for range 200 {
				s = step{
					owners: []string{"aabbccdd", "aaaabbbb", "bbbbaaaa", "abababab", "aaaaaaaa"}[rng.IntN(5)],
					fenced: rng.IntN(8) == 0,
				}.next(t, s)
				feed.Publish(s)
				time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
			}
			time.Sleep(time.Second) // by then, released runs and runs that end early have returned
			synctest.Wait()
			for p := range placement.Partition(8) {
				runs, want := g[p].running.Load() == 1, s.Owns(p) && !g[p].returnedEarly.Load()
				if runs != want {
					t.Errorf("partition %d runs: %v, want %v (owned: %v)", p, runs, want, s.Owns(p))
				}
			}
		}
		feed.Close()
		if err := <-ended; !errors.Is(err, events.ErrClosed) {
			t.Errorf("RunOwned: %v, want ErrClosed", err)
		}
		for p := range g {
			if n := g[p].starts.Load(); n < 100 || g[p].running.Load() != 0 {
				t.Errorf("partition %d: %d runs, %d of them still running", p, n, g[p].running.Load())
			}
		}
	})
}

// TestRunOwnedOnThreads runs a similar test on real threads, with runs that can return at any moment.
func TestRunOwnedOnThreads(t *testing.T) {
	for _, end := range []string{"closed", "cancelled"} {
		t.Run(end, func(t *testing.T) {
			var feed events.Feed
			var g guard
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- events.RunOwned(ctx, &feed, func(ctx context.Context, p placement.Partition) {
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
			if err := <-ended; !errors.Is(err, events.ErrClosed) && ctx.Err() == nil {
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

// TestRuns: a run counts from its start until it has returned, including the time in which it winds down.
func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.windDown = time.Second
		defer r.cancel(errCancelled)
		r.publish(step{owners: "a", members: "a1"})
		synctest.Wait()
		if !r.feed.Runs(0) || r.feed.Runs(1) {
			t.Errorf("runs 0: %v, runs 1: %v", r.feed.Runs(0), r.feed.Runs(1))
		}
		r.publish(step{owners: ".", members: "a1"})
		synctest.Wait()
		if !r.feed.Runs(0) {
			t.Error("it does not count while it winds down")
		}
		begin := time.Now()
		<-r.feed.Returned()
		if took := time.Since(begin); took != time.Second || r.feed.Runs(0) {
			t.Errorf("returned after %v; runs: %v", took, r.feed.Runs(0))
		}
		r.feed.Close()
	})
}

// TestNoRunAfterRelease: after a publisher has released a partition, it looks for runs of it. If there is none, none
// may start later, however late RunOwned notices the release.
func TestNoRunAfterRelease(t *testing.T) {
	owned := step{owners: "a", members: "a1"}.next(t, nil)
	for range 2000 {
		var feed events.Feed
		feed.Publish(owned)
		lost := step{owners: ".", members: "a1"}.next(t, owned)
		var wg sync.WaitGroup
		began := false
		wg.Go(func() { began = feed.Begin(events.Ownership{0, owned.Version}) })
		feed.Publish(lost)
		free := !feed.Runs(0)
		wg.Wait()
		if began && free {
			t.Fatal("it began to run, and the publisher took it for free")
		}
		if !began && feed.Runs(0) {
			t.Fatal("a run that did not begin counts")
		}
	}
}

// TestNextRunning: with handoff, the core tells which partitions the node may run, and which ones it waits for.
func TestNextRunning(t *testing.T) {
	table, members := tableOf(t, "aab"), membersOf(t, "a1 b1")
	ps := func(list ...placement.Partition) []placement.Partition { return list }
	s1 := events.NextRunning(nil, self, table, members, true, ps(0), ps(1))
	s2 := events.NextRunning(s1, self, table, members, true, ps(0, 2), nil)
	s3 := events.NextRunning(s2, self, table, members, true, ps(1), nil)
	s4 := events.NextRunning(s3, self, table, members, true, ps(1), ps(0))
	if !slices.Equal(s1.Owned(), ps(0)) || !slices.Equal(s1.Waits(), ps(1)) {
		t.Errorf("owns %v, waits for %v", s1.Owned(), s1.Waits())
	}
	for i, c := range []struct {
		old, cur *events.State
		want     string
	}{{nil, s1, "+0@1 joined:a joined:b"}, {s1, s2, "+2@2"}, {s2, s3, "-0@1 -2@2 +1@3"}, {s3, s4, ""}} {
		if got := text(events.Diff(c.old, c.cur)); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// TestAwaitRuns: AwaitRuns returns when the runs of all RunOwned calls have returned. If ctx ends first, it returns the
// partitions whose runs have not returned.
func TestAwaitRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed events.Feed
		defer feed.Close()
		states := chain(t, step{owners: "aa", members: "a1"}, step{owners: "..", members: "a1"})
		feed.Publish(states[0])
		for call := range 2 {
			go func() {
				_ = events.RunOwned(t.Context(), &feed, func(ctx context.Context, p placement.Partition) {
					<-ctx.Done()
					time.Sleep(time.Duration(1+int(p)+call) * time.Second)
				})
			}()
		}
		synctest.Wait()
		feed.Publish(states[1])
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		if left := feed.AwaitRuns(ctx); !slices.Equal(left, []placement.Partition{1}) {
			t.Errorf("at the end of ctx: %v", left)
		}
		if left := feed.AwaitRuns(t.Context()); left != nil || time.Since(begin) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), left)
		}
		if left := feed.AwaitRuns(t.Context()); left != nil {
			t.Errorf("without a run: %v", left)
		}
	})
}
