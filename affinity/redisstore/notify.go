package redisstore

import (
	"slices"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity/pinstore"
)

// Notify implements pinstore.Store. It also calls changed with "" after a lost connection
// to any server, so that no stale pin goes unnoticed. With client_cache=0 it calls
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
