package gossip

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Messages that are complete count while they wait to be served.
func TestWaitingMessages(t *testing.T) {
	inWard(t, func(w *ward) {
		hog := w.enter("10.0.0.1")
		w.moves(hog, &w.served, serveBudget)
		hog.moved.Store(1 << 30) // it is fast
		first, second, third := w.enter("10.0.0.2"), w.enter("10.0.0.2"), w.enter("10.0.0.3")
		for _, p := range []*place{first, second} {
			w.moves(p, &w.toRead, 6<<20)
			go func() { _ = p.move(w.ctx, &w.served, 1<<20, 6<<20) }()
		}
		w.moves(third, &w.toRead, 6<<20)
		w.granted("a third message of 6 MiB beside two that wait", false, third)
		w.holds()
		time.Sleep(2 * time.Second)
		w.shut("complete ones have some time", false, first, second)
		time.Sleep(time.Second)
		w.granted("the first one had its time", true, third)
		w.shut("it goes", true, first)
		hog.leave()
		w.granted("it is served", true, second)
		third.leave()
		w.moves(w.enter("10.0.0.4"), &w.toRead, readBudget)
		w.holds()
		if w.toRead.used != readBudget {
			t.Errorf("%d bytes of %d are used", w.toRead.used, readBudget)
		}
	})
}

// A large exchange gets through while unauthenticated peers announce all of the memory, and send nothing.
func TestLargeExchangeAmongOutsiders(t *testing.T) {
	withTimeout := func(d time.Duration) func(*Config) {
		return func(c *Config) { c.Key, c.StreamTimeout = bytes.Repeat([]byte{7}, 32), d }
	}
	var outsiders sync.WaitGroup
	t.Cleanup(outsiders.Wait)
	a, in := start(t, "a#1", withTimeout(time.Hour)) // the streams of the unauthenticated peers do not time out here
	b, from := start(t, "b#1", withTimeout(10*time.Second))
	for range 64 {
		outsiders.Go(func() { // each returns when its stream is closed: a starved exchange takes its next attempt among as many
			for t.Context().Err() == nil {
				if conn, err := net.Dial("tcp", a.Addr()); err == nil {
					_, _ = conn.Write([]byte("\xf4\x04test\x0a\x00\x20\x00\x00"))
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}
		})
	}
	eventually(t, "the memory is short", func() bool {
		a.guard.places.mu.Lock()
		defer a.guard.places.mu.Unlock()
		return len(a.guard.places.toRead.waiting) == 64-readBudget/(2<<20)
	})
	from.state = string(make([]byte, 1<<20))
	if err := join(b, a); err != nil {
		t.Error(err)
	}
	eventually(t, "the state is there", func() bool { _, merged := in.got(); return len(merged) > 0 })
}
