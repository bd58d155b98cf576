package main

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// standIn replaces Redis in the demo, and ends with it. It returns its URL.
func standIn() (url string, end func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, err
	}
	const step = 100 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // keys expire on request only
		defer close(stopped)
		tick := time.NewTicker(step)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
				now := time.Now()
				server.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	}()
	end = func() {
		close(stop)
		<-stopped
		server.Close()
	}
	return "redis://" + server.Addr() + "?client_cache=0", end, nil // it does not notify of changes
}
