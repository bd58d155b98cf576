package firewall

import (
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
