package tour

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// standIn is what the agents share in place of a Redis, so that the demo needs no
// server. It lives in this process and is lost with it, as the agents are. All that
// the demo knows of miniredis is in this file.
type standIn struct {
	server *miniredis.Miniredis
	stop   chan struct{}
	wait   sync.WaitGroup
}

// tickEvery is how exact the times to live of the stand-in are: a key can go this
// much too early. The shortest that matters is that of a lease.
const tickEvery = 100 * time.Millisecond

func startStandIn() (*standIn, error) {
	s := &standIn{server: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := s.server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("tour: start what stands in for Redis: %w", err)
	}
	s.wait.Go(s.age)
	return s, nil
}

// age has time pass: the clock that scripts see goes by itself, but keys expire
// only when miniredis is told. It could look at the clock with each command
// (ClockTTL), and then goes through all keys each time: a list of the rooms took
// 220 ms so, and 11 ms as it is.
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

// url is for the agents. miniredis does not tell clients of changes.
func (s *standIn) url() string { return "redis://" + s.server.Addr() + "?client_cache=0" }

func (s *standIn) close() {
	close(s.stop)
	s.wait.Wait()
	s.server.Close()
}
