package redisstore

import (
	"slices"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity/pinstore"
)

// Notify implements pinstore.Store. It also calls changed with "" after a lost connection
// to any server, so that no stale pin goes unnoticed. With client_cache=0 it calls
// changed only for the changes of other users of this Store.
func (s *Store) Notify(changed func(room string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	users := slices.Concat(s.users(), []func(string){changed})
	s.changed.Store(&users)
}

// users returns the users to notify.
func (s *Store) users() []func(room string) {
	if users := s.changed.Load(); users != nil {
		return *users
	}
	return nil
}

// invalidated is called by each tracking connection; nil stands for all keys.
func (s *Store) invalidated(names []rueidis.RedisMessage) {
	users := s.users()
	if names == nil {
		for _, changed := range users {
			changed("")
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
		for _, changed := range users {
			changed(room)
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
			for _, changed := range users {
				changed(op.Room)
			}
		}
	}
}
