package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity/pinstore"
)

// Notify implements pinstore.Store. It also calls changed with "" when a connection
// to any server is lost, before the next one answers, so that no stale pin goes unnoticed. With client_cache=0 it calls
// changed only for the changes of other users of this Store.
func (s *Store) Notify(changed func(room string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	this := &user{changed}
	users := slices.Concat(s.users(), []*user{this})
	s.changed.Store(&users)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		users := slices.DeleteFunc(slices.Clone(s.users()), func(u *user) bool { return u == this })
		s.changed.Store(&users)
	}
}

// user is notified of changes.
type user struct{ changed func(room string) }

// users returns the users to notify.
func (s *Store) users() []*user {
	if users := s.changed.Load(); users != nil {
		return *users
	}
	return nil
}

// invalidated is called by each tracking connection; nil stands for all keys.
func (s *Store) invalidated(names []rueidis.RedisMessage) {
	users := s.users()
	if names == nil {
		for _, u := range users {
			u.changed("")
		}
		return
	}
	for i := range names {
		name, err := names[i].ToString()
		if err != nil {
			continue
		}
		room, ok := s.keys.room(name)
		if !ok {
			continue
		}
		for _, u := range users {
			u.changed(room)
		}
	}
}

// notifyOthers notifies the users of this Store of each other's changes: the server does
// not notify a connection of its own changes.
func (s *Store) notifyOthers(ops []pinstore.Op, results []pinstore.Result) {
	users := s.users()
	if len(users) < 2 {
		return
	}
	for i, op := range ops {
		if results[i].Done && op.Set.Incarnation != op.If.Incarnation {
			for _, u := range users {
				u.changed(op.Room)
			}
		}
	}
}

type dialer = func(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (net.Conn, error)

// announced returns a dialer of connections that call lost before they close. The client calls
// OnInvalidations, too, but only after it lets callers dial again: an answer over the next
// connection could come first, and what the server has forgotten would pass for a change by
// another node. dial is the client's own, or nil.
func announced(dial dialer, lost func()) dialer {
	return func(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (conn net.Conn, err error) {
		switch {
		case dial != nil:
			conn, err = dial(ctx, addr, d, security)
		case security != nil:
			conn, err = (&tls.Dialer{NetDialer: d, Config: security}).DialContext(ctx, "tcp", addr)
		default:
			conn, err = d.DialContext(ctx, "tcp", addr)
		}
		if err != nil {
			return nil, err
		}
		return &announcing{Conn: conn, lost: lost}, nil
	}
}

// announcing is a connection that calls lost once, before it closes. A connection over which the
// server has never answered tells nothing: a server that hangs is dialled again and again.
type announcing struct {
	net.Conn
	lost           func()
	answered, told atomic.Bool
}

func (c *announcing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.answered.Load() {
		c.answered.Store(true)
	}
	return n, err
}

func (c *announcing) Close() error {
	if c.answered.Load() && !c.told.Swap(true) {
		c.lost()
	}
	return c.Conn.Close()
}
