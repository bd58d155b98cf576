package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// rotating returns credentials that a test can change.
type rotating struct{ now atomic.Pointer[credentials] }

type credentials struct {
	password string
	err      error
}

func (r *rotating) set(password string, err error) { r.now.Store(&credentials{password, err}) }

func (r *rotating) get(context.Context) (username, password string, err error) {
	c := r.now.Load()
	return "roost", c.password, c.err
}

// A store asks for credentials each time it connects, so it needs no restart when the credentials change.
func TestCredentials(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "roost", "on", ">one", "~*", "&*", "+@all")
	var has rotating
	has.set("one", nil)
	s := ready(t, redisAt{URL: "redis://nobody:" + secret + "@" + server.Addr(), Credentials: has.get})
	works(t, s)

	server.Do("ACL", "SETUSER", "roost", "resetpass", ">two")
	works(t, s) // open connections stay open
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	fails(t, s, "WRONGPASS")
	has.set("", errors.New("no token"))
	fails(t, s, "no token")
	has.set("two", nil)
	works(t, s)
}

// Sentinels do not get the credentials of the servers behind them.
func TestCredentialsAreNotForSentinels(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	for _, server := range sentinel.Servers() {
		server.Do("ACL", "SETUSER", "roost", "on", ">one", "~*", "&*", "+@all")
	}
	var has rotating
	has.set("one", nil)
	works(t, ready(t, redisAt{URL: sentinel.URL(), Credentials: has.get}))
}

// Close does not wait for a function that never returns credentials.
func TestCloseEndsTheWaitForCredentials(t *testing.T) {
	server := redistest.Start(t)
	asked := make(chan struct{}, 1)
	s := open(t, redisAt{URL: server.URL(), Credentials: func(ctx context.Context) (string, string, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return "", "", ctx.Err()
	}})
	<-asked
	if err := within(time.Second, func(context.Context) error { return s.Close() }); err != nil {
		t.Error(err)
	}
}
