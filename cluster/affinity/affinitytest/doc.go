// Package affinitytest has conformance suites for implementations of stores: [Store] for pins, [Presence] for
// participants. A test calls them with a function that opens the store:
//
//	func TestPresence(t *testing.T) {
//		affinitytest.Presence(t, func(t *testing.T) (a, b presence.Store) {
//			…
//		})
//	}
//
// The suites check the promises in the doc comments of the interfaces, only via the interfaces, and in real
// time.
package affinitytest
