package routinggrpc

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
)

// conn is the connection to a member. The first call opens the connection. After a failure, conn opens it
// again until it is ready.
type conn struct {
	sub  balancer.SubConn
	idle atomic.Bool
	now  atomic.Pointer[condition]
	late *time.Timer // fires when calls must stop waiting for a failing connection
	last connectivity.State
}

// condition describes whether a connection can serve calls. A condition is immutable.
type condition struct {
	state connectivity.State // after a failure, TransientFailure until the connection is ready
	ready bool
	err   error     // error of the latest failure; nil if the connection does not fail
	since time.Time // when the connection started to fail
}

// connect opens the connection if it is idle.
func (c *conn) connect() {
	if c.idle.CompareAndSwap(true, false) {
		c.sub.Connect()
	}
}

// change handles a new state of the connection, and calls late if the connection has failed for RetryTimeout.
func (c *conn) change(s balancer.SubConnState, timeout time.Duration, late func()) {
	before := c.now.Load()
	switch {
	case s.ConnectivityState == connectivity.Ready:
		c.stopTimer()
		c.now.Store(&condition{state: connectivity.Ready, ready: true})
	case s.ConnectivityState == connectivity.TransientFailure && before.err == nil:
		c.now.Store(&condition{state: connectivity.TransientFailure, err: s.ConnectionError, since: time.Now()})
		c.late = time.AfterFunc(timeout, late)
	case s.ConnectivityState == connectivity.TransientFailure:
		c.now.Store(&condition{state: connectivity.TransientFailure, err: s.ConnectionError, since: before.since})
	case before.err == nil:
		c.now.Store(&condition{state: s.ConnectivityState})
	}
	if s.ConnectivityState == connectivity.Idle {
		c.idle.Store(true)
		if before.err != nil && c.last == connectivity.TransientFailure { // gRPC's backoff is over, and the next call must not fail with an old error
			c.connect()
		}
	}
	c.last = s.ConnectivityState
}

func (c *conn) stopTimer() {
	if c.late != nil {
		c.late.Stop()
	}
}

// close closes the connection when its calls have finished.
func (c *conn) close() {
	c.stopTimer()
	c.sub.Shutdown()
}
