package placementtest

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// Options adapt the suite to a strategy. The zero value is right for a strategy that keeps the whole
// contract.
type Options struct {
	// Nodes are an additional fleet for the tests. Set them if the strategy reads labels other than role,
	// because the suite's own nodes only have the labels role=sfu and role=relay. The nodes must be distinct,
	// sorted by id, and have a weight above 0.
	Nodes []placement.Node

	// Minimal also checks that a join only moves partitions to the joiner, and a leave only moves the
	// leaver's.
	Minimal bool

	// RankIgnoresLoad allows a Rank that does not begin with the owner, for strategies whose owners depend on
	// how many partitions each node has. The table then puts the owner first.
	RankIgnoresLoad bool
}

// Strategy checks that the strategies which fresh returns keep the contract of [placement.Strategy], and of
// [placement.Explainer] and [placement.Stateful] if they implement those. Each call of fresh must return a
// new instance with the same parameters. The suite takes a second or two. It also starts the test binary a
// second time, to compare results of another process.
//
// A strategy must accept every fleet of the suite, including fleets without the labels, zones or capacities
// that its rules use, because after an error a cluster would keep a table with dead nodes in it. It may only
// reject weights near [lease.MaxWeight].
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

// check is one part of the suite. The author of the strategy reads its error.
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

// guard turns a panic of the strategy into an error with the place where it happened, so that the other
// checks still run.
func guard(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the strategy panics: %v\n%s", r, debug.Stack())
		}
	}()
	return run()
}
