package rueidisconn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// While the address leads to a replica, the client closes and opens its connections repeatedly, with increasing pauses.
func TestReplicaIsNotStormed(t *testing.T) {
	var m mover
	closed := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += time.Millisecond { // a busy agent gets an answer every millisecond
			if m.due(time.Unix(1000, 0).Add(at)) {
				n++
			}
		}
		return n
	}
	for range 100 {
		m = mover{}
		if n := closed(0, time.Second); n < 2 || n > 6 {
			t.Errorf("%d times in the first second", n)
		}
		if n := closed(time.Second, time.Minute); n < 11 || n > 27 {
			t.Errorf("%d times in the first minute", n)
		}
		if n := closed(time.Hour, time.Hour+time.Second); n < 2 { // another failover
			t.Errorf("%d times in the first second of the next failover", n)
		}
	}
}

// If a call times out because there is no connection, its error says why there is none. No text contains the password.
func TestUnreachableIsSaid(t *testing.T) {
	server := redistest.Start(t, "--requirepass", secret)
	link := redistest.Proxy(t, server.Addr())
	url := link.URL(server)
	c := open(t, Options{URL: url})
	if got := c.String(); got != link.Addr()+"/0" {
		t.Errorf("the connection says %q of its address", got)
	}
	link.Cut()
	redistest.Eventually(t, "a late call", func() error {
		l := c.link.Load()
		err := l.late(context.DeadlineExceeded)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "dial tcp "+link.Addr()) {
			return errors.Join(ping(c), err)
		}
		return nil
	})
	link.Heal()
	redistest.Eventually(t, "an answer", func() error { return ping(c) })
	if err := c.link.Load().late(context.DeadlineExceeded); err != context.DeadlineExceeded { //nolint:errorlint // the error must not be wrapped
		t.Error(err)
	}
}
