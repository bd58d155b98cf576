package clustertest

import "sync/atomic"

// gate blocks an agent's loop while its node is paused.
type gate struct {
	closed atomic.Pointer[chan struct{}]
}

func (g *gate) close() {
	shut := make(chan struct{})
	g.closed.CompareAndSwap(nil, &shut)
}

func (g *gate) open() {
	if shut := g.closed.Swap(nil); shut != nil {
		close(*shut)
	}
}

// wait waits until the gate is open.
func (g *gate) wait() {
	if shut := g.closed.Load(); shut != nil {
		<-*shut
	}
}
