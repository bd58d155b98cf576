// Package affinitytest has conformance suites for implementers of stores: [Store] for
// pins, [Presence] for participants. A test calls them with a function that opens the
// store:
//
//	func TestPresence(t *testing.T) {
//		affinitytest.Presence(t, func(t *testing.T) (a, b presence.Store) {
//			…
//		})
//	}
//
// The suites check the promises in the doc comments of the interfaces, through the
// interface alone, in real time.
package affinitytest
