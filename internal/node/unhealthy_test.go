package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

var errUnhealthy = errors.New("sick")

// A node with an unhealthy application owns nothing but remains a member, and the other nodes see it drain. A single
// failed check moves no partition. A drain by command and a failing health check do not end each other.
func TestUnhealthy(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	b := w.nodes["b"]
	state := func(from string) (state lease.State) {
		for _, m := range w.nodes[from].View().Live.Members {
			if m.ID == "b" {
				state = m.State
			}
		}
		return state
	}
	check := func(when string, want lease.State) {
		t.Helper()
		w.run(time.Second)
		for _, id := range w.ids {
			if got := state(id); got != want {
				t.Errorf("%s: %s sees b %v, want %v", when, id, got, want)
			}
		}
		if owns := w.owned("b") > 0; owns != (want == lease.Active) {
			t.Errorf("%s: b owns %d partitions", when, w.owned("b"))
		}
	}
	check("at first", lease.Active)
	before := b.View().Stats.TableChanges
	b.Checked(w.now, errUnhealthy)
	check("one failure", lease.Active)
	b.Checked(w.now, nil)
	b.Checked(w.now, errUnhealthy)
	check("one failure again", lease.Active)
	if moves := b.View().Stats.TableChanges - before; moves != 0 {
		t.Errorf("the table changed %d times", moves)
	}
	b.Checked(w.now, errUnhealthy)
	check("two failures in a row", lease.Draining)
	v := b.View()
	if len(v.Holds) != 1 || v.Holds[0].Cause != node.CauseUnhealthy || v.Holds[0].Reason != errUnhealthy.Error() ||
		v.Stats.HealthFailures != 3 {
		t.Errorf("it owns nothing because of %+v, after %d failures", v.Holds, v.Stats.HealthFailures)
	}
	b.Undrain(w.now)
	check("undrained", lease.Draining)
	b.Drain(w.now)
	b.Checked(w.now, nil)
	b.Checked(w.now, nil)
	check("healthy, and drained", lease.Draining)
	b.Undrain(w.now)
	check("healthy, and undrained", lease.Active)
	b.Reported(w.now, 500*time.Millisecond)
	check("silent", lease.Draining)
	b.Reported(w.now, 0)
	check("no report is expected", lease.Active)
}

// If the application of a node is checked, the node owns nothing before the first check succeeds.
func TestCheckedFromTheStart(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.Checked = c.Self.ID == "b" }, "a", "b", "c")
	if w.owned("b") != 0 || w.owned("a") == 0 {
		t.Errorf("b owns %d, a %d", w.owned("b"), w.owned("a"))
	}
	for failures, want := range []int{0, 0, 1, 1} { // the second failure is logged
		if failures > 0 {
			w.nodes["b"].Checked(w.now, errUnhealthy)
			w.run(time.Second)
		}
		if n := w.logged("b", "owns nothing", "cause", "unhealthy"); n != want {
			t.Errorf("%d lines after %d failed checks, want %d", n, failures, want)
		}
	}
	for range node.SuccessesInARow {
		w.nodes["b"].Checked(w.now, nil)
	}
	w.run(time.Second)
	if n := w.logged("b", "hold ended", "cause", "unhealthy"); n != 1 {
		t.Errorf("%d lines when the health check passes again", n)
	}
	if w.owned("b") == 0 {
		t.Error("b is healthy, and owns nothing")
	}
}
