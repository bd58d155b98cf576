package events

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// A run counts from its begin until it has returned, also while it winds down.
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

// TestNoRunAfterRelease: a publisher that sees no run of a partition which it has just
// released sees none later, however late the watcher is.
func TestNoRunAfterRelease(t *testing.T) {
	owned := step{owners: "a", members: "a1"}.next(t, nil)
	for range 2000 {
		var feed Feed
		feed.Publish(owned)
		lost := step{owners: ".", members: "a1"}.next(t, owned)
		var wg sync.WaitGroup
		began := false
		wg.Go(func() { began = feed.begin(Ownership{0, owned.Version}) })
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

// With handoff, the core says what the node may run and what it waits for.
func TestNextRunning(t *testing.T) {
	table, members := tableOf(t, "aab"), membersOf(t, "a1 b1")
	ps := func(list ...placement.Partition) []placement.Partition { return list }
	s1 := NextRunning(nil, self, table, members, true, ps(0), ps(1))
	s2 := NextRunning(s1, self, table, members, true, ps(0, 2), nil)
	s3 := NextRunning(s2, self, table, members, true, ps(1), nil)
	s4 := NextRunning(s3, self, table, members, true, ps(1), ps(0))
	if !slices.Equal(s1.Owned(), ps(0)) || !slices.Equal(s1.Waits(), ps(1)) {
		t.Errorf("owns %v, waits for %v", s1.Owned(), s1.Waits())
	}
	for i, c := range []struct {
		old, cur *State
		want     string
	}{{nil, s1, "+0@1 joined:a joined:b"}, {s1, s2, "+2@2"}, {s2, s3, "-0@1 -2@2 +1@3"}, {s3, s4, ""}} {
		if got := text(Diff(c.old, c.cur)); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// AwaitRuns returns when the runs of all calls have returned, or with the partitions of those that have not by the end of ctx.
func TestAwaitRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		defer feed.Close()
		states := chain(t, step{owners: "aa", members: "a1"}, step{owners: "..", members: "a1"})
		feed.Publish(states[0])
		for call := range 2 {
			go func() {
				_ = RunOwned(t.Context(), &feed, func(ctx context.Context, p placement.Partition) {
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
