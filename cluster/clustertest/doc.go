// Package clustertest runs whole clusters in memory, for the tests of programs
// that embed roost as well as for roost's own. It works inside a bubble of
// testing/synctest, where a virtual minute takes milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		c := clustertest.New(t, clustertest.Options{})
//		c.Start("a", "b", "c")
//		c.WaitAgreed(time.Second)
//		c.Crash("b")
//		c.WaitAgreed(7 * time.Second)
//	})
//
// The agents are real ones, over real memberlist; only the sockets are
// simulated. Every node's events are recorded from its first batch on, and
// [Cluster.Check] replays them.
//
// Methods fail the test rather than return errors. A Cluster belongs to the
// goroutine of its test.
package clustertest
