package affinity_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// reported calls Report on a node, and returns the answer and how long it took.
func (f *fleet) reported(at string, lost reconnect.Directive) (affinity.Assignment, time.Duration) {
	f.t.Helper()
	began := time.Now()
	a, err := f.rooms[at].Report(f.t.Context(), lost)
	if err != nil {
		f.t.Fatalf("report of %+v at %s: %v", lost, at, err)
	}
	return a, time.Since(began)
}

func TestReport(t *testing.T) {
	inFleet(t, "a b c d e", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 3)
		home := f.resolve("a", "r", 3)
		at, node := f.not(string(home.Node)), string(home.Node)
		for what, lost := range map[string]reconnect.Directive{
			"alive":                 home.Directive(),
			"without an epoch":      {Room: "r", To: home.Node},
			"the room alone":        {Room: "r"},
			"of another node":       {Room: "r", To: "other", Epoch: home.Epoch + 9},
			"of an earlier hosting": {Room: "r", To: home.Node, Epoch: home.Epoch - 1},
		} {
			if a, took := f.reported(at, lost); a.Incarnation != home.Incarnation || a.Epoch != home.Epoch || took > 100*time.Millisecond {
				t.Errorf("%s: %v after %v", what, a, took)
			}
		}
		if a, took := f.reported(node, home.Directive()); a.Incarnation != home.Incarnation || took > 0 {
			t.Errorf("at the node itself: %v after %v", a, took)
		}
		if _, err := f.rooms[at].Report(t.Context(), reconnect.Directive{Room: "none"}); !errors.Is(err, affinity.ErrNoPin) {
			t.Errorf("a room without a pin: %v", err)
		}
		if _, err := f.rooms[at].Report(t.Context(), reconnect.Directive{Room: "r*"}); !errors.Is(err, affinity.ErrName) {
			t.Errorf("an invalid name: %v", err)
		}

		time.Sleep(10 * time.Second)
		f.Pause(node)
		if a, took := f.reported(at, home.Directive()); a.Incarnation != home.Incarnation || took > time.Second {
			t.Errorf("a paused node: %v after %v", a, took)
		}
		f.Resume(node)
		time.Sleep(10 * time.Second)
		if lost(h) {
			t.Fatal("the room has moved")
		}

		f.crash(node)
		a, took := f.reported(at, home.Directive())
		if a.Node == home.Node || a.Epoch <= home.Epoch || took > 600*time.Millisecond {
			t.Errorf("a dead node: %v after %v", a, took)
		}
		if later, _ := f.reported(f.not(at), home.Directive()); later.Incarnation != a.Incarnation || later.Epoch != a.Epoch {
			t.Errorf("a late report: %v, not %v", later, a)
		}
	})
}

// The store has lost a pin, and the host has restored it with a greater epoch. The report of a client that connected
// before the loss must still count.
func TestReportAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		f := newFleet(t, data, affinity.Config{}, "a", "b", "c", "d")
		time.Sleep(5 * time.Second)
		f.host("a", "r", 3)
		home := f.resolve("a", "r", 3)
		data.empty()
		time.Sleep(10 * time.Second)
		if now := f.resolve("a", "r", 3); now.Incarnation != home.Incarnation || now.Epoch <= home.Epoch {
			t.Fatalf("the pin was not restored: %v, then %v", home, now)
		}
		f.crash(string(home.Node))
		if a, took := f.reported(f.not(string(home.Node)), home.Directive()); a.Node == home.Node || took > time.Second {
			t.Errorf("%v after %v", a, took)
		}
	})
}

// A client that gives up does not wait for the check of the node, whether or not this client was the first to report
// the node. Close does wait for the check.
func TestReportGivesUp(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		home := f.resolve("a", "r", 2)
		r := f.rooms[f.not(string(home.Node))]
		looks := r.HoldLooks()
		for range 2 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			a, err := r.Report(ctx, home.Directive())
			if err != nil || a.Incarnation != home.Incarnation || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%v, %v after %v", a, err, time.Since(began))
			}
			cancel()
		}
		closed := make(chan struct{})
		go func() { _ = r.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed, and the look goes on")
		default:
		}
		close(looks)
		<-closed
	})
}

// However many clients report a node, the agent checks it only once a second. Reports alone do not move
// rooms.
func TestReportsShareLooks(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		const at = "a"
		looks := f.rooms[at].CountLooks()
		var lost []affinity.Assignment
		for _, room := range names(50) {
			if home := f.resolve(at, room, 2); home.Node != at {
				lost = append(lost, home)
			}
		}
		before := pins(t, f.store)
		for round := range 3 {
			var wait sync.WaitGroup
			for _, home := range lost {
				for range 4 {
					wait.Go(func() {
						if a, _ := f.reported(at, home.Directive()); a.Incarnation != home.Incarnation || a.Epoch != home.Epoch {
							t.Errorf("%v is reported, and the answer is %v", home, a)
						}
					})
				}
			}
			wait.Wait()
			if !maps.Equal(pins(t, f.store), before) {
				t.Error("a room has moved")
			}
			if want := int64(round + 1); looks.Load() != want || len(lost) == 0 {
				t.Errorf("%d reports made %d looks, want %d", 4*len(lost)*(round+1), looks.Load(), want)
			}
			time.Sleep(time.Second)
		}
	})
}
