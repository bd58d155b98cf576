package tour

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

func TestObserve(t *testing.T) {
	want := fleet([]string{"a", "b", "c"}, "abcabcab", []string{"lobby", "stage"})
	parties := people(want, map[string]lease.NodeID{"attic": "a", "yard": "c"})
	tour, f, _ := fakeTour(t, want)
	tour.parties = parties
	f.unrest = 4 // answers from two tables are not used
	got, err := tour.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{}, pin{})); diff != "" {
		t.Error(diff)
	}
	if f.unrest != 0 {
		t.Error("no agent was asked again")
	}
}

func TestObserveOneThatDied(t *testing.T) {
	tour, _, _ := fakeTour(t, fleet([]string{"a", "b"}, "abab", nil))
	tour.nodes[1].client.Base = "127.0.0.1:1" // no agent is there
	if _, err := tour.observe(t.Context()); err == nil || !strings.Contains(err.Error(), "ask b for its members") {
		t.Errorf("got %v", err)
	}
	p, err := agentproc.Start(exec.Command("true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	tour.nodes[1].Process = p
	if _, err := tour.observe(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("b: pid %d ended by itself", p.PID())) {
		t.Errorf("got %v", err)
	}
}

// TestAgreed: the tour waits for each obstacle to agreement, and names it when it gives up.
func TestAgreed(t *testing.T) {
	for _, c := range []struct {
		name  string
		upset func(tour *tour, f *fakes)
		why   string
	}{
		{"all is well", func(*tour, *fakes) {}, ""},
		{"a member is missing", func(_ *tour, f *fakes) { delete(f.answers[1].members, "a") }, "b does not see a"},
		{"a member should be gone", func(tour *tour, _ *fakes) { tour.nodes[1].state = lease.Left }, "a still sees b"},
		{"another state", func(tour *tour, _ *fakes) { tour.nodes[1].state = lease.Draining }, "a sees b as active"},
		{"another table", func(_ *tour, f *fakes) { f.answers[1].digest = 0xbeef }, "b has digest 000000000000beef, a has 00c0ffee00c0ffee"},
		{"drift", func(_ *tour, f *fakes) { f.drift = 2 }, "a knows of 2 members with another table"},
		{"silence", func(tour *tour, _ *fakes) { tour.nodes[1].client.Base = "127.0.0.1:1" }, "b does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of them wait
			tour, f, _ := fakeTour(t, fleet([]string{"a", "b"}, "abab", nil))
			c.upset(tour, f)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
			defer cancel()
			_, err := tour.agreed(ctx, time.Now(), "agree")
			if c.why == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

func TestAgreedWaits(t *testing.T) {
	sound, early := fleet(ab, "abab", nil), fleet(ab, "abab", nil)
	early[1].members["a"] = lease.Settling
	tour, f, _ := fakeTour(t, early)
	defer time.AfterFunc(200*time.Millisecond, func() { f.set(sound) }).Stop()
	took, err := tour.agreed(t.Context(), time.Now(), "agree")
	if err != nil || took < 200*time.Millisecond {
		t.Errorf("agreed after %v, %v", took, err)
	}
}

// TestBrokenStep: a step names a move that should not have happened.
func TestBrokenStep(t *testing.T) {
	nodes, rooms := []string{"a", "b", "c"}, []string{"lobby", "stage"}
	for _, c := range []struct {
		after  string
		broken []string
	}{
		{"cbabcb", nil},
		{"bcabcb", []string{"step 3: only partitions that c now owns moved: partition 0 moved from a to b"}},
	} {
		before, after := fleet(nodes, "ababab", rooms), fleet(nodes, c.after, rooms)
		people(after, homes)
		tour, f, out := fakeTour(t, before)
		tour.seen, tour.parties = before, people(before, homes)
		err := tour.apply(t.Context(), change{
			title: "c takes over", what: "c took over",
			act:    func(context.Context) error { f.set(after); return nil },
			checks: func(o outcome) []check { return []check{onlyTo("c", o.moves)} },
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.broken, tour.broken); diff != "" {
			t.Errorf("%s: %s", c.after, diff)
		}
		err = tour.verdict()
		if shown := strings.Contains(out.String(), "BROKEN"); shown != (c.broken != nil) || shown != (err != nil) {
			t.Errorf("verdict %v of this:\n%s", err, out)
		}
		if err != nil && !strings.Contains(err.Error(), c.broken[0]) {
			t.Errorf("the verdict does not name what is broken: %v", err)
		}
	}
}
