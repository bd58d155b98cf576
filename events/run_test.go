package events

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/placement"
)

var errCancelled = errors.New("the test cancels")

// rig is a RunOwned in a bubble that logs its runs. A run takes windDown to return after
// its context has ended, and returns by itself after early, if set.
type rig struct {
	t        *testing.T
	feed     Feed
	state    *State
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
		err := RunOwned(ctx, &r.feed, r.run)
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

// expect compares the log since the last call. Partitions run in parallel, so the order
// within one instant does not matter.
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
			r.expect("0 ends: "+ErrReleased.Error(), "0 returns", "2 starts")
			r.cancel(nil)
			r.expect("1 ends: context canceled", "1 returns", "2 ends: context canceled", "2 returns",
				"all end: context canceled")
		},
		"the next run waits for the last": func(r *rig) {
			r.windDown = time.Minute
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.publish(step{owners: "b"})
			r.expect("0 ends: " + ErrReleased.Error())
			r.publish(step{owners: "a"})
			time.Sleep(59 * time.Second)
			r.expect()
			time.Sleep(time.Second)
			r.expect("0 returns", "0 starts")
			r.feed.Close()
			time.Sleep(time.Minute)
			r.expect("0 ends: "+ErrClosed.Error(), "0 returns", "all end: "+ErrClosed.Error())
		},
		"no next run if it was lost again by then": func(r *rig) {
			r.windDown = time.Minute
			for _, owners := range []string{"a", "b", "a", "b"} {
				r.publish(step{owners: owners})
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 ends: "+ErrReleased.Error(), "0 returns")
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
			r.expect("0 starts", "0 ends: "+ErrReleased.Error(), "0 returns", "0 starts")
			r.feed.Close()
			time.Sleep(time.Minute)
			r.expect("0 ends: "+ErrClosed.Error(), "0 returns", "all end: "+ErrClosed.Error())
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
			r.expect("0 ends: "+ErrClosed.Error(), "0 returns", "all end: "+ErrClosed.Error())
		},
		"released and closed at once": func(r *rig) {
			r.windDown = time.Minute
			r.publish(step{owners: "a"})
			r.expect("0 starts")
			r.publish(step{owners: "a", fenced: true})
			r.feed.Close()
			r.expect("0 ends: " + ErrReleased.Error())
			time.Sleep(time.Minute)
			r.expect("0 returns", "all end: "+ErrClosed.Error())
		},
		"closed while a new run is due": func(r *rig) {
			r.windDown = time.Minute
			for _, owners := range []string{"a", "b", "a"} {
				r.publish(step{owners: owners})
				synctest.Wait()
			}
			r.feed.Close()
			time.Sleep(time.Hour)
			r.expect("0 starts", "0 ends: "+ErrReleased.Error(), "0 returns", "all end: "+ErrClosed.Error())
		},
		"lost and regained unseen": func(r *rig) {
			r.publish(step{owners: "aa"})
			r.expect("0 starts", "1 starts")
			r.state = step{owners: "ba"}.next(r.t, r.state) // not published
			r.publish(step{owners: "aa"})
			r.expect("0 ends: "+ErrReleased.Error(), "0 returns", "0 starts")
			r.cancel(nil)
		},
		"closed before any state": func(r *rig) {
			r.feed.Close()
			r.expect("all end: " + ErrClosed.Error())
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

// A waiting run reads the newest state before it starts: the partition may have been
// lost without a notification yet.
func TestRunOwnedReadsStateBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		states := chain(t, step{owners: "a"}, step{owners: "b"}, step{owners: "a"}, step{owners: "b"})
		var feed Feed
		starts := 0
		woundDown := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go RunOwned(ctx, &feed, func(ctx context.Context, _ placement.Partition) {
			starts++
			<-ctx.Done()
			<-woundDown
		})
		for _, s := range states[:3] {
			feed.Publish(s)
			synctest.Wait()
		}
		var quiet latest.Value[*State]
		quiet.Set(states[3])
		reflect.ValueOf(&feed.newest).Elem().Set(reflect.ValueOf(&quiet).Elem()) // wakes no reader
		close(woundDown)
		synctest.Wait()
		if starts != 1 {
			t.Errorf("%d runs, want 1", starts)
		}
	})
}
