// Package standin provides a replacement for Redis, so that demos do not need a Redis server.
package standin

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Precision is the precision of TTLs: a key can expire up to this much too early. This is precise enough,
// because the shortest TTL that matters is the TTL of a lease.
const Precision = 100 * time.Millisecond

// Start starts a replacement for the Redis server that agents share, and returns its URL. The replacement
// runs until stop is called or this process exits. It is miniredis, which cannot push messages over a
// connection for commands (RESP3), so the URL selects protocol 2.
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

// age advances the TTLs of keys, because miniredis does this only on request. The option ClockTTL would make
// miniredis check the clock in each command, but then each command would visit all keys. Listing the rooms
// would take 220 ms instead of 11 ms.
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
