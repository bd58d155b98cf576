// Package clustertest runs whole clusters in memory, for tests of roost and of programs
// that embed it. It runs inside a testing/synctest bubble, where a virtual minute takes
// milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		c := clustertest.New(t, clustertest.Options{})
//		c.Start("a", "b", "c")
//		c.WaitAgreed(time.Second)
//		c.Crash("b")
//		c.WaitAgreed(time.Second)
//	})
//
// Agents and memberlist are real; only the sockets are simulated. The events of every
// node are recorded from its first batch on, and [Cluster.Check] compares them with the
// node's state.
//
// Tests with real sockets and real time do not need this package. Use the timings of [cluster.Local] for
// them.
//
// Methods fail the test instead of returning errors. A Cluster belongs to the goroutine
// of its test.
package clustertest
