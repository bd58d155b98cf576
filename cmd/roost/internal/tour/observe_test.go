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
	tour, f := scene(t, abc, "abcabcab", homes)
	tour.rooms = []string{"lobby", "stage"}
	want := fleet(abc, "abcabcab", tour.rooms)
	people(want, homes)
	f.answers[1].expired, want[1].expired = map[lease.NodeID]int{"x": 1}, map[lease.NodeID]int{"x": 1}
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
	tour, _ := scene(t, ab, "abab", nil)
	tour.nodes[1].client.Base = "127.0.0.1:1" // no agent is there
	observe := func(ctx context.Context) error {
		_, err := tour.observe(ctx)
		return err
	}
	if err := tour.take(t.Context(), observe); err == nil || !strings.Contains(err.Error(), "ask b for its members") {
		t.Errorf("got %v", err)
	}
	p, err := agentproc.Start(exec.Command("true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	tour.nodes[1].Process = p
	want := fmt.Sprintf("b: pid %d ended by itself", p.PID())
	if err := tour.take(t.Context(), observe); err == nil || !strings.Contains(err.Error(), want) {
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
		{"diverged", func(_ *tour, f *fakes) { f.divergence = 2 }, "a knows of 2 members with another table"},
		{"silence", func(tour *tour, _ *fakes) { tour.nodes[1].client.Base = "127.0.0.1:1" }, "b does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of them wait
			tour, f := scene(t, ab, "abab", nil)
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

// TestAgreedTooLate: the step's time ends when the agents have just agreed.
func TestAgreedTooLate(t *testing.T) {
	tour, _ := scene(t, ab, "abab", nil)
	agreed := func(ctx context.Context) error {
		_, err := tour.agreed(&ending{ctx, 1}, time.Now(), "agree")
		return err
	}
	err := tour.take(t.Context(), agreed)
	tour.explain(err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// ending is a context that has ended when it was looked at so often.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestBrokenStep: a step names partitions and rooms that should have stayed, or should
// have moved, and the verdict repeats that.
func TestBrokenStep(t *testing.T) {
	const moved, host = "no pinned room moved: ", "each is hosted by the node that it is pinned to, and by no other: yard has no host"
	for name, c := range map[string]struct {
		table  string
		after  map[string]lease.NodeID
		broken []string
	}{
		"sound":       {"abcabc", homes, nil},
		"a partition": {"bbcabc", homes, []string{"no partition moved: partition 0 moved from a to b"}},
		"moved":       {"abcabc", map[string]lease.NodeID{"attic": "a", "yard": "c"}, []string{moved + "yard was pinned to b, now to c"}},
		"lost": {"abcabc", map[string]lease.NodeID{"attic": "a"}, []string{
			moved + "yard was pinned to b, now to nobody",
			"all 3 agents list the same 2 pins, one for each room: yard has no pin, says a (and 2 more)", host,
		}},
		"orphaned": {"abcabc", map[string]lease.NodeID{"attic": "a", "yard": "d"}, []string{
			moved + "yard was pinned to b, now to d",
			"no pin names a node that is gone: yard is pinned to d says a, which is no member (and 2 more)", host,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tour, f := scene(t, abc, "abcabc", homes)
			after := fleet(abc, c.table, nil)
			people(after, c.after)
			err := tour.apply(t.Context(), change{
				title: "something happens", what: "it happened",
				act:    func(context.Context) error { f.set(after); return nil },
				checks: func(o outcome) []check { return []check{nothingMoved(o.moves), pinsStay(o.before, o.after)} },
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.broken {
				c.broken[i] = "step 3: " + c.broken[i]
			}
			if diff := cmp.Diff(c.broken, tour.broken); diff != "" {
				t.Error(diff)
			}
			err = tour.verdict()
			out := tour.out.w.(*agentproc.Log).String()
			if shown := strings.Contains(out, "BROKEN"); shown != (c.broken != nil) || shown != (err != nil) {
				t.Errorf("verdict %v of this:\n%s", err, out)
			}
			for _, want := range c.broken {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("the verdict does not name the broken part: %v", err)
				}
			}
		})
	}
}
