package redisstore

import (
	"slices"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
)

// Notify implements affinity.Store. changed is called with "" also when the
// connection to any server is lost, so that pins cannot go stale unnoticed. With
// client_cache=0 it is called only for changes that other users of this Store make.
func (s *Store) Notify(changed func(room string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heed := slices.Concat(s.heed(), []func(string){changed})
	s.changed.Store(&heed)
}

// heed returns who is to be told.
func (s *Store) heed() []func(room string) {
	if heed := s.changed.Load(); heed != nil {
		return *heed
	}
	return nil
}

// invalidated is called by each connection with tracking; nil stands for all keys.
func (s *Store) invalidated(names []rueidis.RedisMessage) {
	heed := s.heed()
	if names == nil {
		for _, changed := range heed {
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
		for _, changed := range heed {
			changed(room)
		}
	}
}

// tellOthers tells several users of this Store of what one of them has changed:
// the server does not report to a connection what that did itself.
func (s *Store) tellOthers(ops []affinity.Op, results []affinity.Result) {
	heed := s.heed()
	if len(heed) < 2 {
		return
	}
	for i, op := range ops {
		if results[i].Done && op.Set.Incarnation != op.If.Incarnation {
			for _, changed := range heed {
				changed(op.Room)
			}
		}
	}
}
