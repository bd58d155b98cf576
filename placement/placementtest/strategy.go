package placementtest

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// Options say what else holds for a strategy. The zero value suits any strategy
// that keeps the contract to the letter.
type Options struct {
	// Nodes are a fleet to test with beside the suite's own, whose nodes have no
	// labels but role=sfu and role=relay: give one here if the strategy looks at
	// others. They are sorted by id and distinct, each of weight > 0.
	Nodes []placement.Node

	// Minimal also checks that a join moves partitions only to the joiner, and a
	// leave only the leaver's.
	Minimal bool

	// RankIgnoresLoad is for strategies whose owners depend on how many partitions
	// the nodes have got, so that Rank cannot know the owner of a single one. It
	// must then begin with some node, and the table puts the owner before it.
	RankIgnoresLoad bool
}

// Strategy checks that the strategies that fresh returns keep the contract of
// [placement.Strategy], and of [placement.Explainer] and [placement.Stateful] if they
// implement those. Each call of fresh returns a new instance, all of the same parameters. The suite takes a second
// or two, and starts the test binary once more, to ask another process.
//
// A strategy must answer for every fleet that the suite tries, also for one without
// the labels, zones or capacities that it goes by: a cluster in which it returned
// an error would keep a table with the dead in it. It may refuse only weights near
// [lease.MaxWeight].
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

// check is one part of the suite. It returns what is wrong, for its user to read.
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

// suite is what is tested, and on what.
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
