package tour

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tickEvery is the precision of the stand-in's TTLs: a key can expire this much too early.
// The shortest TTL that matters is of a lease.
const tickEvery = 100 * time.Millisecond

// startStandIn starts what replaces the Redis that the agents share, so that the demo needs
// no server. It ends with this process, as the agents do. Nothing else in the demo knows
// miniredis, which does not notify clients of changes.
func startStandIn() (url string, stop func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("tour: start the stand-in for Redis: %w", err)
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { age(server, done) })
	return "redis://" + server.Addr() + "?client_cache=0", func() {
		close(done)
		wait.Wait()
		server.Close()
	}, nil
}

// age expires keys, which miniredis does on request only. It could check the clock at each
// command (ClockTTL), and would then visit all keys each time: a list of the rooms took
// 220 ms instead of 11 ms.
func age(server *miniredis.Miniredis, done <-chan struct{}) {
	tick := time.NewTicker(tickEvery)
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
