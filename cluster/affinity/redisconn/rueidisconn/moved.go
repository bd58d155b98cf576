package rueidisconn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// mover closes the connections to a server that is no longer the master. New connections then go to the
// server at which the address of Redis points. After a failover of a managed Redis service or behind a load
// balancer, the old master continues to run as a replica. The old master keeps its connections open but
// rejects all writes. mover is for a single server. With Sentinel or a cluster, the client discovers the
// master itself.
type mover struct {
	conns *connections

	mu    sync.Mutex
	last  time.Time // when they were last closed
	pause time.Duration
	next  time.Time // when they may be closed again
}

// The address of Redis may point at the replica temporarily or permanently. Dialing the replica without a
// pause could overload the replica. The first pause is short, and later pauses are longer.
const (
	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
)

// heed closes the connections if an answer shows that the server is not a master.
func (m *mover) heed(answers ...rueidis.RedisResult) {
	for _, answer := range answers {
		if err, ok := rueidis.IsRedisErr(answer.Error()); ok && noMaster(err.Error()) {
			if m.due(time.Now()) {
				m.conns.close(fmt.Errorf("the connection was closed to look for the master again: %w", err))
			}
			return
		}
	}
}

// noMaster reports whether an error comes from a replica, including a replica that has lost its master.
func noMaster(err string) bool {
	return strings.HasPrefix(err, "READONLY ") || strings.HasPrefix(err, "MASTERDOWN ")
}

// due reports whether to close the connections now.
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

// heeding is a client that passes its answers to a mover.
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
