// Package clustertest runs whole clusters in memory, for tests of roost and of programs that embed it. A test
// runs inside a testing/synctest bubble, where a virtual minute takes milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		c := clustertest.New(t, clustertest.Options{})
//		c.Start("a", "b", "c")
//		c.WaitAgreed(time.Second)
//		c.Crash("b")
//		c.WaitAgreed(time.Second)
//	})
//
// Agents and memberlist are real. Only the sockets are simulated. The package records all events of every
// node, including the first batch, and [Cluster.Check] compares them with the node's state.
//
// Tests with real sockets and real time do not need this package. Use the timings of [cluster.Local] in tests
// with real sockets.
//
// Methods fail the test instead of returning errors. Only the goroutine of the test may use a Cluster.
package clustertest
