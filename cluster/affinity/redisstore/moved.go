package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// mover closes the connections to a server that is no master any more, so that the next ones go where the address of
// Redis leads to by then. In a failover of a managed Redis, or behind a balancer, the former master stays up as
// a replica: it keeps its connections and rejects writes for good. It is for a single server: where there are
// sentinels or a cluster, the client asks them for the master.
type mover struct {
	all []*connections // in the order to close them

	mu    sync.Mutex
	last  time.Time // when they were closed
	pause time.Duration
	next  time.Time // when they may be closed again
}

// The address may lead to the replica for a while, or for good. A fleet that dials it without a pause could keep the
// server busy: the first pause is short, and the next ones are longer.
const (
	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
)

// heed closes the connections if an answer says that the server is no master.
func (m *mover) heed(answers ...rueidis.RedisResult) {
	for _, answer := range answers {
		if err, ok := rueidis.IsRedisErr(answer.Error()); ok && noMaster(err.Error()) {
			if m.due(time.Now()) {
				for _, c := range m.all {
					c.close(fmt.Errorf("the connection was closed to look for the master again: %w", err))
				}
			}
			return
		}
	}
}

// noMaster reports whether an error is that of a replica, or of a replica that has lost its master.
func noMaster(err string) bool {
	return strings.HasPrefix(err, "READONLY ") || strings.HasPrefix(err, "MASTERDOWN ")
}

// due reports whether the connections are to be closed now.
func (m *mover) due(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Before(m.next) {
		return false
	}
	m.pause = min(2*m.pause, mostPause)
	if m.last.IsZero() || now.Sub(m.last) > 2*mostPause { // the server was a master in between
		m.pause = leastPause
	}
	m.last, m.next = now, now.Add(m.pause/2+rand.N(m.pause/2))
	return true
}

// heeding is a client whose answers a mover heeds.
type heeding struct {
	rueidis.Client
	*mover
}

func (h heeding) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	answer := h.Client.Do(ctx, cmd)
	h.heed(answer)
	return answer
}

func (h heeding) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	answers := h.Client.DoMulti(ctx, cmds...)
	h.heed(answers...)
	return answers
}
