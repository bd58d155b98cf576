package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// jugs are two jugs that hold 3 and 5 litres. The goal of the riddle is to have 4 litres in the larger jug.
type jugs [2]int

func riddle(broken func(jugs) bool) Model[jugs, string] {
	size := jugs{3, 5}
	return Model[jugs, string]{
		Start: []jugs{{}},
		Key:   func(s jugs) string { return fmt.Sprint(s) },
		Next: func(s jugs, visit func(string, jugs)) {
			for i := range s {
				full, empty, pour := s, s, s
				full[i], empty[i] = size[i], 0
				n := min(s[i], size[1-i]-s[1-i])
				pour[i], pour[1-i] = s[i]-n, s[1-i]+n
				visit(fmt.Sprint("fill ", size[i]), full)
				visit(fmt.Sprint("empty ", size[i]), empty)
				visit(fmt.Sprint("pour ", size[i]), pour)
			}
		},
		Invariants: []Invariant[jugs]{{"not four litres", func(s jugs) bool { return !broken(s) }}},
		MaxStates:  1000,
	}
}

func TestShortestTrace(t *testing.T) {
	r := riddle(func(s jugs) bool { return s[1] == 4 }).Run()
	want := []string{"fill 5", "pour 5", "empty 3", "pour 5", "fill 5", "pour 5"}
	if r.Broken != "not four litres" || r.Whole || !slices.Equal(r.Trace, want) {
		t.Errorf("%s, want %q", r, want)
	}
	if !strings.Contains(r.String(), "broken: not four litres\n  1. fill 5\n") {
		t.Errorf("the report does not show the trace: %s", r)
	}
}

// TestAllStates checks the number of states. In every state, at least one jug is full or empty.
func TestAllStates(t *testing.T) {
	r := riddle(func(s jugs) bool { return s[0]%3 != 0 && s[1]%5 != 0 }).Run()
	if r.Broken != "" || !r.Whole || r.States != 16 || r.Steps != 16*6 {
		t.Error(r)
	}
}

func TestStartBroken(t *testing.T) {
	if r := riddle(func(jugs) bool { return true }).Run(); r.Broken == "" || len(r.Trace) != 0 || r.States != 1 {
		t.Error(r)
	}
}

// TestBound: if an exploration was stopped early, the result does not claim that all states were visited.
func TestBound(t *testing.T) {
	m := riddle(func(jugs) bool { return false })
	m.MaxStates = 5
	if r := m.Run(); r.Whole || r.Broken != "" || r.States < 5 {
		t.Error(r)
	}
}
