package main

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

var hunt = flag.Bool("hunt", false, "look for the first seed that finds each planted bug")

// All invariants hold in some schedules. make chaos runs many more.
func TestSchedules(t *testing.T) {
	o := options{seeds: 60, jobs: 2}
	if testing.Short() {
		o.seeds = 10
	}
	var out strings.Builder
	if !o.run(&out) {
		t.Error(out.String())
	}
}

// Two runs of a seed are the same: each step and each log line has its moment.
func TestReplay(t *testing.T) {
	for seed := range uint64(5) {
		a, b := run(draw(seed)), run(draw(seed))
		if !slices.Equal(a.story, b.story) || a.Fingerprint() != b.Fingerprint() {
			t.Errorf("two runs of seed %d differ", seed)
		}
	}
	if a, b := run(draw(1)), run(draw(2)); slices.Equal(a.story, b.story) {
		t.Error("two seeds are the same")
	}
}

// A failure is printed with the command that repeats it, and with no more faults than it takes.
func TestShrink(t *testing.T) {
	s := draw(1)
	half := make(map[*world]bool)
	s.steps = slices.Insert(s.steps, 3, step{text: "first", do: func(w *world) { half[w] = true }})
	s.steps = append(s.steps, step{text: "last", do: func(w *world) {
		if half[w] {
			w.fail("fence", "planted")
		}
	}})
	var out strings.Builder
	r := report{options: options{shrink: true}, out: &out, begin: time.Now()}
	r.add(run(s))
	r.line()
	for _, want := range []string{"first\n", "last\n", "seed 1 failed: fence", "-seed 1 -shrink", "1 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	if x := shrink(run(s)); len(x.s.steps) != 2 || x.failure == nil {
		t.Errorf("%d steps are left, and %v", len(x.s.steps), x.failure)
	}
}

// A panic of a node is a failure.
func TestPanic(t *testing.T) {
	s := draw(1)
	s.steps[0].do = func(*world) { panic("planted") }
	if w := run(s); w.failure == nil || w.failure.invariant != "panic" {
		t.Errorf("failure %v", w.failure)
	}
}
