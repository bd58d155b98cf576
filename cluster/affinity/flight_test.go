package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// callersOf starts several callers that resolve the room r on node a, and returns their answers. Every second caller
// has a context that can be cancelled.
func callersOf(t *testing.T, f *fleet, callers int) (answers []affinity.Assignment) {
	t.Helper()
	canEnd, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers = make([]affinity.Assignment, callers)
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			ctx := context.Background()
			if i%2 == 1 {
				ctx = canEnd
			}
			var err error
			if answers[i], err = f.rooms["a"].Resolve(ctx, "r", affinity.Demand{Size: 2}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	wait.Wait()
	return answers
}

// Callers share a call to the store, whether or not the first caller's context can be cancelled. If it cannot be
// cancelled, the call needs no additional goroutine.
func TestCallersShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := &slow{Store: pinstore.NewMemory()}
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		data.trip.Store(int64(time.Second / 20))
		before := store.swaps.Load()
		all := callersOf(t, f, 10)
		for _, a := range all {
			if a.Epoch == 0 || a != all[0] {
				t.Errorf("answers %+v and %+v", all[0], a)
			}
		}
		if n := store.swaps.Load() - before; n != 1 {
			t.Errorf("%d calls of the store", n)
		}
		goroutines := func(ctx context.Context, room string) int {
			before := runtime.NumGoroutine()
			go func() { _, _ = f.rooms["a"].Resolve(ctx, room, affinity.Demand{Size: 2}) }()
			synctest.Wait()
			return runtime.NumGoroutine() - before
		}
		if n := goroutines(context.Background(), "s"); n != 1 {
			t.Errorf("a caller that waits as long as it takes has %d goroutines, want its own", n)
		}
	})
}

// A callback panics while the first caller queries the store on its own goroutine. The callers that share this query
// must still get an answer.
func TestPanicOfFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := make(chan struct{})
		var calls atomic.Int64
		cfg := affinity.Config{Selector: func(room string, _ affinity.Demand, _ *cluster.Member) bool {
			if room == "r" && calls.Add(1) == 1 {
				<-panics
				panic("the selector is broken")
			}
			return true
		}}
		f := newFleet(t, pinstore.NewMemory(), cfg, "a", "b")
		got := make(chan any, 1)
		go func() {
			defer func() { got <- recover() }()
			_, _ = f.rooms["a"].Resolve(context.Background(), "r", affinity.Demand{Size: 2})
		}()
		synctest.Wait()
		time.AfterFunc(time.Second/20, func() { close(panics) })
		for _, a := range callersOf(t, f, 6) {
			if a.Epoch == 0 {
				t.Errorf("answered %+v", a)
			}
		}
		if <-got == nil {
			t.Error("the first caller did not get its panic")
		}
	})
}

// A resolver is closed while a caller waits for a store that hangs. Close and the caller's Resolve must both return in
// time.
func TestCloseDuringResolve(t *testing.T) {
	for name, canEnd := range map[string]bool{"the caller can give up": true, "the caller cannot give up": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: pinstore.NewMemory()}
				f := newFleet(t, store, affinity.Config{}, "a", "b")
				store.hangs.Store(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if !canEnd {
					ctx = context.WithoutCancel(ctx)
				}
				began := time.Now()
				answered := make(chan error)
				go func() {
					_, err := f.rooms["a"].Resolve(ctx, "r", affinity.Demand{Size: 2})
					answered <- err
				}()
				synctest.Wait()
				_ = f.rooms["a"].Close()
				if err := <-answered; err != nil && !errors.Is(err, affinity.ErrClosed) || time.Since(began) > 2*time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// Under load, each caller gets the answer for its own room, even if its previous call timed out.
func TestWaitersAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := &slow{Store: pinstore.NewMemory()}
		f := newFleet(t, data, affinity.Config{}, "a", "b")
		for i := range 30 {
			trip := time.Duration(i) * 7 * time.Millisecond // up to more than the budget
			data.trip.Store(int64(trip))
			var wait sync.WaitGroup
			for j := range 100 {
				wait.Go(func() {
					room := fmt.Sprint("r-", i, "-", j)
					a, err := f.rooms["a"].Resolve(context.Background(), room, affinity.Demand{Size: 1})
					if err != nil || a.Room != room {
						t.Errorf("%s: %+v, %v", room, a, err)
					}
					if data.trip.Store(0); a.Epoch == 0 {
						return
					}
					if pin := data.Store.Swap(t.Context(), pinstore.Op{Partition: a.Partition, Room: room})[0].Pin; pin.Epoch != a.Epoch || pin.Node != a.Node {
						t.Errorf("%s: resolved to %+v, pinned to %v", room, a, pin)
					}
				})
			}
			wait.Wait()
		}
	})
}
