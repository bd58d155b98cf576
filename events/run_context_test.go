package events

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/roost-cluster/roost/placement"
)

// lookout is a context that reports whenever another one is derived from it.
type lookout struct {
	context.Context
	derived func()
}

func (l lookout) Value(key any) any {
	l.derived()
	return l.Context.Value(key)
}

// Released partitions are cancelled before any new run starts.
func TestRunOwnedReleasesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		var old context.Context
		starts := 0
		ctx := lookout{t.Context(), func() {
			if starts++; old != nil && old.Err() == nil {
				t.Error("a run starts before the release")
			}
		}}
		s := step{owners: "ba"}.next(t, nil)
		feed.Publish(s)
		go RunOwned(ctx, &feed, func(ctx context.Context, p placement.Partition) {
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

// A run that has returned leaves no context behind, while its parent continues.
func TestRunOwnedEndsItsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		var kept context.Context
		feed.Publish(step{owners: "a"}.next(t, nil))
		go RunOwned(t.Context(), &feed, func(ctx context.Context, _ placement.Partition) { kept = ctx })
		synctest.Wait()
		if kept.Err() == nil {
			t.Error("the context of a run outlives it")
		}
	})
}

// opaque is a context of a foreign type, which cancels derived contexts slowly.
type opaque struct{ context.Context }

func (opaque) Value(any) any { return nil }

// Every run gets the right cause, also the runs that the end of ctx reaches last.
func TestRunOwnedCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		ctx, cancel := context.WithCancel(t.Context())
		var wrong atomic.Int32
		feed.Publish(step{owners: strings.Repeat("a", 200)}.next(t, nil))
		go RunOwned(opaque{ctx}, &feed, func(ctx context.Context, _ placement.Partition) {
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
