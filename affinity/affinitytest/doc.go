// Package affinitytest has conformance suites for those who write their own
// stores: [Store] for pins, [PresenceStore] for who is in which room. Each is
// called from a test with a function that opens the store:
//
//	func TestPresence(t *testing.T) {
//		affinitytest.PresenceStore(t, func(t *testing.T) (a, b affinity.PresenceStore) {
//			…
//		})
//	}
//
// The suites check what the doc comments of the interfaces promise, by way of the
// interface alone, in real time.
package affinitytest
