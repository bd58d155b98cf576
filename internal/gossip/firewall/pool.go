package firewall

import (
	"net/netip"
	"slices"
	"time"
)

// pool is a budget of bytes.
type pool struct {
	bytes, most int
	time        time.Duration // that a stream has in any case
	used        int
	granted     []*place // in the order of the grants
	waiting     []*place
}

// grantAll begins with the streams that wait to be served: they give back what they keep to read.
func (s *admission) grantAll(now time.Time) (victims []*place) {
	return append(s.grant(&s.served, now), s.grant(&s.toRead, now)...)
}

// grant gives budget to the streams that wait for it, and takes it from those that are
// overdue. The next one is of the source that uses least, small, and early.
func (s *admission) grant(in *pool, now time.Time) (victims []*place) {
	for len(in.waiting) > 0 {
		next := s.next(in)
		if in.used+next.bytes > in.bytes || len(in.granted) >= in.most {
			users := s.users(in)
			i := slices.IndexFunc(users, func(p *place) bool { return p.overdue(now) })
			if i < 0 {
				return victims
			}
			victims = append(victims, users[i])
			s.expel(users[i])
			continue
		}
		s.toRead.used -= next.kept
		next.kept = 0
		in.waiting = slices.DeleteFunc(in.waiting, func(p *place) bool { return p == next })
		in.granted = append(in.granted, next)
		in.used += next.bytes
		next.at, next.granted = now, true
		close(next.ready)
	}
	return victims
}

// users returns the streams that have bytes of a pool.
func (s *admission) users(in *pool) []*place {
	if in != &s.toRead {
		return in.granted
	}
	return append(slices.Clone(in.granted), slices.DeleteFunc(slices.Clone(s.served.waiting), func(p *place) bool { return p.kept == 0 })...)
}

func (s *admission) next(in *pool) *place {
	uses := make(map[netip.Addr]int)
	for _, p := range s.users(in) {
		if p.pool == in {
			uses[p.from] += p.bytes
		} else {
			uses[p.from] += p.kept
		}
	}
	return slices.MinFunc(in.waiting, func(a, b *place) int { // the first one of equals
		if d := uses[a.from] - uses[b.from]; d != 0 {
			return d
		}
		return a.bytes - b.bytes
	})
}

// sent notes the size of a message of this node, which may be its full state.
func (s *admission) sent(bytes int) {
	if most := s.answer.Load(); int64(bytes) > most {
		s.answer.Store(int64(bytes))
	} else if bytes > smallStream {
		s.answer.Store(most - (most-int64(bytes))/16)
	}
}

// nodeBytes is half of what memberlist keeps for each node of an exchange, besides the bytes that were sent.
const nodeBytes = 128

// costs returns the bytes of the budget for a message that memberlist handles.
func (s *admission) costs(message, nodes int) int {
	return 2 * (message + nodes*nodeBytes + int(s.answer.Load()))
}
