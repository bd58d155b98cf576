package main

import "time"

// calm is when a fault was last a reason for a lease to end.
type calm struct {
	network time.Duration
	node    map[string]time.Duration // by id
}

const (
	calmAfter = 2 * ttl
	calmLoss  = 0.2             // of packets
	calmClock = 2 * time.Second // ahead of the true time or behind; MaxSkew is 5 s
)

// noteTrouble notes the present faults that are such reasons.
func (w *world) noteTrouble() {
	running := 0
	for id, h := range w.hosts {
		if h.paused || h.lossy || !h.clockRight() {
			w.calm.node[id] = w.Elapsed()
		}
		if w.runs(id) && !h.paused {
			running++
		}
	}
	// Where most peers do not answer, news travels slowly.
	if w.isCut || w.loss > calmLoss || 2*running < len(w.hosts) {
		w.calm.network = w.Elapsed()
	}
}

func (h *host) clockRight() bool { return h.clock.Abs() <= calmClock }

// isCalm reports whether there was no reason for a lease of these nodes to end.
func (w *world) isCalm(ids ...string) bool {
	last := w.calm.network
	for _, id := range ids {
		last = max(last, w.calm.node[id])
	}
	return w.Elapsed()-last > calmAfter
}
