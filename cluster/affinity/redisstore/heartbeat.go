package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Heartbeat implements pinstore.Store. Heartbeat takes one command. The store also detects data loss. If the
// previous heartbeat of self cannot have expired but the server does not have it, the server has lost data,
// and the store notifies its users. The check works without a lost connection, for example after FLUSHALL or
// a failover behind a proxy.
func (s *Store) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	what := fmt.Sprintf("heartbeat of %.80q", self.String())
	if err := checkIncarnation(self); err != nil {
		return nil, storeError(what, err)
	}
	if ttl > 0 {
		ttl = max(ttl, time.Millisecond)
	}
	args := make([]string, 0, 2+len(ask))
	args = append(args, textOf(self), strconv.FormatInt(ttl.Milliseconds(), 10))
	for _, at := range ask {
		args = append(args, textOf(at))
	}
	asked := time.Now()
	flags, err := s.heartbeat.run(ctx, s.conn, call{[]string{keys{prefix: s.prefix}.heartbeats()}, args})[0].List()
	switch {
	case err != nil:
		return nil, storeError(what, err)
	case len(flags) != 1+len(ask):
		return nil, storeError(what, errAnswer)
	}
	if s.beats.lost(self, asked, ttl, flags[0] == int64(1)) {
		s.news.lose(errForgotten)
	}
	flags = flags[1:]
	alive := make([]bool, len(ask))
	for i, flag := range flags {
		alive[i] = flag == int64(1)
	}
	return alive, nil
}

var errForgotten = errors.New("the latest heartbeat is gone from Redis")

// beats remembers how long the latest heartbeat of each user must last.
type beats struct {
	mu    sync.Mutex
	until map[lease.Incarnation]time.Time
}

// lost records a heartbeat that was sent at the time asked. lost reports whether the server has lost an
// earlier heartbeat.
func (b *beats) lost(self lease.Incarnation, asked time.Time, ttl time.Duration, known bool) bool {
	if self == (lease.Incarnation{}) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	lost := !known && now.Before(b.until[self]) // the previous heartbeat should have lasted until after the script ran
	if b.until == nil {
		b.until = make(map[lease.Incarnation]time.Time)
	}
	if delete(b.until, self); ttl > 0 {
		b.until[self] = asked.Add(ttl)
	}
	return lost
}
