package placementtest

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// Options adapt the suite to a strategy. Use the zero value for a strategy that fulfills the whole contract.
type Options struct {
	// Nodes are an additional fleet for the tests. Set them if the strategy reads labels other than role,
	// because the suite's own nodes only have the labels role=sfu and role=relay. The nodes must be distinct,
	// sorted by id, and have a weight above 0.
	Nodes []placement.Node

	// Minimal also checks that a join only moves partitions to the joiner, and a leave only moves the
	// leaver's partitions.
	Minimal bool

	// RankIgnoresLoad allows Rank to return another node before the owner, for strategies whose owners depend
	// on how many partitions each node has. The table then puts the owner first.
	RankIgnoresLoad bool
}

// Strategy checks that the strategies returned by fresh fulfill the contract of [placement.Strategy]. It also
// checks the contracts of [placement.Explainer] and [placement.Stateful] if the strategies implement these
// interfaces. Each call of fresh must return a new instance with the same parameters. The suite takes one or
// two seconds. It also runs the test binary in a second process, to compare results.
//
// A strategy must accept every fleet of the suite, even if the nodes have no labels, zones or capacities. If
// a strategy returned an error in a cluster, the cluster would keep an old table with dead nodes. A strategy
// may only reject weights near [lease.MaxWeight].
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

// check is a part of the suite. Its error is written for the author of the strategy.
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

// suite combines a strategy with the inputs to test.
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
