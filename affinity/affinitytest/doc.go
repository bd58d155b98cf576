// Package affinitytest has conformance suites for those who write their own
// stores: [Store] for pins, [Presence] for participants. Each is
// called from a test with a function that opens the store:
//
//	func TestPresence(t *testing.T) {
//		affinitytest.Presence(t, func(t *testing.T) (a, b presence.Store) {
//			…
//		})
//	}
//
// The suites check what the doc comments of the interfaces promise, by way of the
// interface alone, in real time.
package affinitytest
