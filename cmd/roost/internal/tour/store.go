package tour

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// standIn replaces the Redis that the agents share, so that the demo needs no server. It
// ends with this process, as the agents do. Nothing else in the demo knows miniredis.
type standIn struct {
	server *miniredis.Miniredis
	stop   chan struct{}
	wait   sync.WaitGroup
}

// tickEvery is the precision of the stand-in's TTLs: a key can expire this much too early.
// The shortest TTL that matters is of a lease.
const tickEvery = 100 * time.Millisecond

func startStandIn() (*standIn, error) {
	s := &standIn{server: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := s.server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("tour: start the stand-in for Redis: %w", err)
	}
	s.wait.Go(s.age)
	return s, nil
}

// age expires keys, which miniredis does on request only. It could check the clock at each
// command (ClockTTL), and would then visit all keys each time: a list of the rooms took
// 220 ms instead of 11 ms.
func (s *standIn) age() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			s.server.FastForward(now.Sub(last))
			last = now
		case <-s.stop:
			return
		}
	}
}

// url is for the agents. miniredis does not notify clients of changes.
func (s *standIn) url() string { return "redis://" + s.server.Addr() + "?client_cache=0" }

func (s *standIn) close() {
	close(s.stop)
	s.wait.Wait()
	s.server.Close()
}
