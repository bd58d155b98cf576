// Package explore checks protocols. It visits every state that a model can reach, and reports the shortest
// way to a state that breaks an invariant. It is for tests of pure code, and compares states by keys.
//
// A [Model] drives the code itself and not a description of it. Each action copies the state, calls the code,
// and passes on the copy. A model is only finite if it limits what may happen: the number of restarts, of
// changes, of messages.
package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Model is a protocol in a small world. S is a state of that world, and A is an action.
type Model[S, A any] struct {
	Start []S

	// Key identifies a state. Two states with equal keys must have the same future, because only the first
	// one is explored.
	Key func(S) string

	// Next calls visit with each action that is possible in a state, and the state that follows. It must not
	// change the state that it receives. The order of actions must not vary, or else traces would vary.
	Next func(s S, visit func(A, S))

	Invariants []Invariant[S]

	// MaxStates stops the exploration of a world that is larger than expected.
	MaxStates int
}

// Invariant is what holds in every state.
type Invariant[S any] struct {
	Name  string
	Holds func(S) bool
}

// Result is what an exploration found.
type Result[A any] struct {
	States int    // visited states
	Steps  int    // transitions between them
	Depth  int    // actions on the longest of the shortest ways to a state
	Whole  bool   // all reachable states were visited
	Broken string // name of the invariant that does not hold; "" = all hold
	Trace  []A    // a shortest way to the state that breaks it
}

// String returns a line about what was visited, followed by the trace, if there is one.
func (r Result[A]) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d steps, depth %d", r.States, r.Steps, r.Depth)
	if r.Broken != "" {
		fmt.Fprintf(&b, "; broken: %s", r.Broken)
	} else if !r.Whole {
		b.WriteString("; more states are left")
	}
	for i, a := range r.Trace {
		fmt.Fprintf(&b, "\n%3d. %v", i+1, a)
	}
	return b.String()
}

// found is a visited state, and how it was reached. The state itself is not kept.
type found[A any] struct {
	from   int // index of the state before; -1 = a start
	action A
	depth  int
}

// Run visits the states breadth first, until all are visited, an invariant is broken, or MaxStates is
// reached.
func (m Model[S, A]) Run() Result[A] {
	type item struct {
		state S
		index int
	}
	var (
		r     Result[A]
		all   []found[A]
		queue []item
		seen  = make(map[string]struct{})
	)
	visit := func(s S, by found[A]) {
		key := m.Key(s)
		if _, known := seen[key]; known || r.Broken != "" {
			return
		}
		seen[key] = struct{}{}
		all = append(all, by)
		queue = append(queue, item{s, len(all) - 1})
		r.States, r.Depth = len(all), by.depth
		if r.Broken = m.broken(s); r.Broken != "" {
			r.Trace = trace(all)
		}
	}
	for _, s := range m.Start {
		visit(s, found[A]{from: -1})
	}
	for len(queue) > 0 && r.Broken == "" && r.States < m.MaxStates {
		next := queue[0]
		queue[0] = item{} // so that the state can be garbage collected
		queue = queue[1:]
		depth := all[next.index].depth + 1
		m.Next(next.state, func(a A, s S) {
			r.Steps++
			visit(s, found[A]{next.index, a, depth})
		})
	}
	r.Whole = len(queue) == 0 && r.Broken == ""
	return r
}

func (m Model[S, A]) broken(s S) string {
	for _, i := range m.Invariants {
		if !i.Holds(s) {
			return i.Name
		}
	}
	return ""
}

// trace returns the actions that lead to the state that was found last.
func trace[A any](all []found[A]) (actions []A) {
	for f := all[len(all)-1]; f.from >= 0; f = all[f.from] {
		actions = append(actions, f.action)
	}
	slices.Reverse(actions)
	return actions
}
