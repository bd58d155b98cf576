package httpproxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lookEvery is how often the owner of a key is looked up while its server has not answered.
	lookEvery = 200 * time.Millisecond

	// moveGrace is for how long a server may still answer after its key has moved. Most moves are of servers
	// that live: they drain, or a join took a part of their keys, and a request in progress gets its answer
	// at less cost than by a second run. By its address alone a server that vanished looks the same, and the
	// cluster needed longer than the grace to notice that.
	moveGrace = time.Second
)

var errMoved = errors.New("the key has another owner by now, and this server has not answered")

// watch gives up an attempt without an answer when the key has had another owner for moveGrace. TCP notices only after
// minutes that a host has vanished, and never that a process is paused.
type watch struct {
	router *router
	way    route
	cancel context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer
	moved   time.Time // since when there is another owner
	ended   bool
	gaveUp  bool
	problem any // a panic of Place
}

// watch returns the context of an attempt that is watched until end is called.
func (t *router) watch(ctx context.Context, way route) (context.Context, *watch) {
	w := &watch{router: t, way: way}
	ctx, w.cancel = context.WithCancel(ctx) // the end of the request releases that of an answer
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(lookEvery, w.look)
	return ctx, w
}

// look runs in the goroutine of the timer. Place may take its time there, and an answer does not wait for it.
func (w *watch) look() {
	defer func() {
		if problem := recover(); problem != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.ended {
				w.problem = problem
				w.cancel()
			}
		}
	}()
	elsewhere := w.elsewhere()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
		return
	case !elsewhere:
		w.moved = time.Time{}
	case w.moved.IsZero():
		w.moved = time.Now()
	case time.Since(w.moved) >= moveGrace:
		w.gaveUp = true
		w.cancel()
		return
	}
	w.timer.Reset(lookEvery)
}

// elsewhere reports whether the key has another owner, which can be asked.
func (w *watch) elsewhere() bool {
	addr, _, err := w.router.cfg.Place(w.way.key)
	if err != nil || addr == w.way.addr {
		return false
	}
	_, err = w.router.target(addr)
	return err == nil
}

// end ends the watch, and reports whether the attempt was given up. The body of an answer goes on. A panic of
// Place goes on here, in the goroutine of the request. A nil watch was never begun.
func (w *watch) end(answered bool) (gaveUp bool) {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	if !answered {
		w.cancel()
	}
	if problem := w.problem; problem != nil {
		w.problem = nil
		panic(problem)
	}
	return w.gaveUp
}
