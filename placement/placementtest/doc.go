// Package placementtest has a conformance suite for those who write their own
// placement.Strategy. It is called from a test, with a function that returns a new
// instance:
//
//	func TestShards(t *testing.T) {
//		placementtest.Strategy(t, func() placement.Strategy { return NewShards(64) }, placementtest.Options{})
//	}
//
// The suite checks what the doc comment of placement.Strategy asks, by way of the
// interface alone: that the answers are complete and in range, and equal for equal
// arguments, in this process, in another one, and in many goroutines. Run it with
// -race, too. It cannot see everything: floating point, for one, differs only on
// another CPU.
package placementtest
