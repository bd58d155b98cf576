// Package explore is a model checker for tests of pure code. It visits every state that a model can reach,
// and reports a shortest path to a state that violates an invariant. Two states are the same if their keys
// are equal.
//
// A [Model] runs the real code instead of a description of it. Each action copies the state, calls the code,
// and passes the copy on. To have a finite number of states, a model must limit how many restarts, changes
// and messages can occur.
package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Model is a protocol together with its environment, such as the network. S is a state of both, and A is an
// action that leads to another state.
type Model[S, A any] struct {
	Start []S

	// Key identifies a state. Two states with equal keys must have the same future, because Run explores only
	// the first of them.
	Key func(S) string

	// Next calls visit for each possible action in the state s, and passes the action and the resulting
	// state. Next must not change s. The order of actions must not vary between calls, because otherwise
	// traces would vary.
	Next func(s S, visit func(A, S))

	Invariants []Invariant[S]

	// MaxStates stops Run if the model has more states than expected.
	MaxStates int
}

// Invariant is a condition that must be true in every state.
type Invariant[S any] struct {
	Name  string
	Holds func(S) bool
}

// Result is the result of Run.
type Result[A any] struct {
	States int    // visited states
	Steps  int    // transitions between them
	Depth  int    // largest number of actions needed to reach a visited state
	Whole  bool   // all reachable states were visited
	Broken string // name of the violated invariant; "" = none
	Trace  []A    // shortest path to the state that violates the invariant
}

// String returns a summary in one line, followed by the trace if an invariant was violated.
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

// found records how a visited state was reached. It does not contain the state itself.
type found[A any] struct {
	from   int // index of the previous state; -1 = a start state
	action A
	depth  int
}

// Run visits the states breadth first. It stops when it has visited all states, finds a violated invariant,
// or reaches MaxStates.
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

// trace returns the actions that lead to the last state in all.
func trace[A any](all []found[A]) (actions []A) {
	for f := all[len(all)-1]; f.from >= 0; f = all[f.from] {
		actions = append(actions, f.action)
	}
	slices.Reverse(actions)
	return actions
}
