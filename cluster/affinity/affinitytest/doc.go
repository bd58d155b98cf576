// Package affinitytest contains conformance suites for implementations of stores. Call [Store] to test a
// store for pins and [Presence] to test a store for participants. Pass each suite a function that opens your
// store:
//
//	func TestPresence(t *testing.T) {
//		affinitytest.Presence(t, func(t *testing.T) (a, b presence.Store) {
//			…
//		})
//	}
//
// The suites check what the doc comments of the interfaces promise. The suites use only the interfaces and
// run in real time.
package affinitytest
