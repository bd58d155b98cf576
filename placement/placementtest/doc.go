// Package placementtest has a conformance suite for strategies of your own. A test
// calls it with a function that returns a new instance:
//
//	func TestShards(t *testing.T) {
//		placementtest.Strategy(t, func() placement.Strategy { return NewShards(64) }, placementtest.Options{})
//	}
//
// The suite checks the requirements in the doc comment of placement.Strategy, by its
// interface alone: results are complete and in range, and equal for equal arguments,
// in this process, in another one, and in many goroutines. Run it with -race, too. It
// cannot see everything: floating point, for one, differs only on another CPU.
package placementtest
