// Package placementtest provides a conformance suite for your own strategies. Call it in a test, with a
// function that returns a new instance:
//
//	func TestShards(t *testing.T) {
//		placementtest.Strategy(t, func() placement.Strategy { return NewShards(64) }, placementtest.Options{})
//	}
//
// The suite checks the requirements in the doc comment of placement.Strategy, using only its interface.
// Results must be complete and in range. Results must also be equal for equal arguments, in the test process,
// in another process, and in many goroutines. Also run the suite with -race. The suite cannot detect every
// bug. For example, floating-point results may differ only on another CPU.
package placementtest
