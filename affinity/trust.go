package affinity

import "time"

// earlyTime is how long those who host rooms have to pin them again.
const earlyTime = time.Second

// trust is how far the store's silence can be believed. Owned by Resolver.mu.
type trust struct {
	since time.Time // since when this node's signings have gone through without a gap
	last  time.Time // the latest one
	lost  bool      // the store was away since this resolver was started
	away  bool      // and nothing was heard of it since
}

// heard notes a signing that went through.
func (t *trust) heard(now time.Time, ttl time.Duration) {
	if t.away || now.Sub(t.last) > ttl/2 {
		t.since = now
	}
	t.last, t.away = now, false
}

// lose notes that the store was away, and may have lost its data.
func (t *trust) lose(now time.Time) { *t = trust{since: now, lost: true, away: true} }

// judges reports whether a life that has not signed is dead: if the store was
// there for a whole TTL, everybody who lives has signed.
func (t *trust) judges(now time.Time, ttl time.Duration) bool {
	return now.Sub(t.since) >= ttl && now.Sub(t.last) <= ttl/2
}

// early reports whether the store has been lost and has not been back for long, as
// far as this node has heard. It may have lost its data, and those who host rooms
// are to pin them again before anybody claims them anew, be it by the very call by
// which this node would find out that the store is back.
func (t *trust) early(now time.Time) bool {
	return t.lost && (t.away || now.Sub(t.since) < earlyTime)
}
