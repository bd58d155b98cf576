package redisstore

import "github.com/redis/rueidis"

// Notify implements affinity.Store. changed is called with "" also when the
// connection to any server is lost, so that pins cannot go stale unnoticed. With
// client_cache=0 it is never called.
func (s *Store) Notify(changed func(room string)) { s.changed.Store(&changed) }

// invalidated is called by each connection with tracking; nil stands for all keys.
func (s *Store) invalidated(names []rueidis.RedisMessage) {
	changed := s.changed.Load()
	if changed == nil {
		return
	}
	if names == nil {
		(*changed)("")
		return
	}
	for i := range names {
		name, err := names[i].ToString()
		if err != nil {
			continue
		}
		if room, ok := s.keys.room(name); ok {
			(*changed)(room)
		}
	}
}
