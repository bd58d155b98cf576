package placementtest

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// Options adapt the suite to a strategy. The zero value suits any strategy that keeps
// the contract to the letter.
type Options struct {
	// Nodes are one more fleet for the tests. The nodes of the suite have the labels
	// role=sfu and role=relay only: state a fleet if the strategy reads others. It is
	// sorted by id and distinct, each node of weight > 0.
	Nodes []placement.Node

	// Minimal also checks that a join moves partitions only to the joiner, and a
	// leave only the leaver's.
	Minimal bool

	// RankIgnoresLoad allows a Rank that does not begin with the owner, for strategies
	// in which owners depend on the number of partitions of each node. The table then
	// puts the owner first.
	RankIgnoresLoad bool
}

// Strategy checks that the strategies that fresh returns keep the contract of
// [placement.Strategy], and of [placement.Explainer] and [placement.Stateful] if they
// implement those. Each call of fresh returns a new instance, all of the same
// parameters. The suite takes a second or two, and starts the test binary once more,
// for results of another process.
//
// A strategy must place on every fleet of the suite, also on one without the labels,
// zones or capacities that its rules use: after an error, a cluster would keep a table
// with dead nodes in it. It may reject only weights near [lease.MaxWeight].
func Strategy(t *testing.T, fresh func() placement.Strategy, o Options) {
	t.Helper()
	s := newSuite(fresh, o)
	for _, c := range checks(o) {
		t.Run(c.name, func(t *testing.T) {
			if err := guard(func() error { return c.run(s) }); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("AnotherProcess", func(t *testing.T) { anotherProcess(t, s) })
}

// check is one part of the suite. Its error is for the author of the strategy.
type check struct {
	name string
	run  func(*suite) error
}

func checks(o Options) []check {
	all := []check{
		{"Name", (*suite).name},
		{"Total", (*suite).total},
		{"Deterministic", (*suite).deterministic},
		{"Forgetful", (*suite).forgetful},
		{"LeavesNodesAlone", (*suite).leavesNodesAlone},
		{"KeepsNoNodes", (*suite).keepsNoNodes},
		{"Rank", (*suite).rank},
		{"Explain", (*suite).explain},
		{"Stateful", (*suite).stateful},
		{"Concurrent", (*suite).concurrent},
	}
	if o.Minimal {
		all = append(all, check{"Minimal", (*suite).minimal})
	}
	return all
}

// suite is a strategy and the inputs to test it on.
type suite struct {
	fresh   func() placement.Strategy
	options Options
	cases   []input
}

func newSuite(fresh func() placement.Strategy, o Options) *suite {
	return &suite{fresh: fresh, options: o, cases: inputs(o.Nodes)}
}

// guard makes an error of a panic of the strategy, with the place where it
// happened, so that the other checks run all the same.
func guard(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the strategy panics: %v\n%s", r, debug.Stack())
		}
	}()
	return run()
}
