// Package placementtest has a conformance suite for your own strategies. A test calls it with a function that
// returns a new instance:
//
//	func TestShards(t *testing.T) {
//		placementtest.Strategy(t, func() placement.Strategy { return NewShards(64) }, placementtest.Options{})
//	}
//
// The suite checks the requirements in the doc comment of placement.Strategy, using only its interface:
// results are complete and in range, and equal for equal arguments, in this process, in another process, and
// in many goroutines. Run it with -race, too. It cannot detect everything. For example, floating-point
// results may differ only on another CPU.
package placementtest
