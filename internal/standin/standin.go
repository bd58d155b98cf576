// Package standin replaces Redis in demos, which then need no server.
package standin

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Precision is the precision of the stand-in's TTLs: a key can expire this much too early. The shortest
// important TTL is that of a lease.
const Precision = 100 * time.Millisecond

// Start starts a replacement for the Redis that agents share, which runs until stop or the end of this
// process. It returns its URL. The replacement is miniredis, which cannot send messages over a
// connection for commands (RESP3).
func Start() (url string, stop func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("start the stand-in for Redis: %w", err)
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { age(server, done) })
	return "redis://" + server.Addr() + "?protocol=2", func() {
		close(done)
		wait.Wait()
		server.Close()
	}, nil
}

// age expires keys, which miniredis only does on request. With ClockTTL it would check the clock at each
// command, but would then visit all keys each time, and a list of the rooms would take 220 ms instead of 11
// ms.
func age(server *miniredis.Miniredis, done <-chan struct{}) {
	tick := time.NewTicker(Precision)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case now := <-tick.C:
			server.FastForward(now.Sub(last))
			last = now
		case <-done:
			return
		}
	}
}
