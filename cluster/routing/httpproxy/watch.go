package httpproxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lookEvery is how often the owner of a key is looked up while its server has not responded.
	lookEvery = 200 * time.Millisecond

	// moveGrace is how long a server may still respond after its key has moved. Most moves are from live
	// servers, because they drain or a join took some of their keys. A request in progress then gets its
	// response with less effort than by a second run. A vanished server cannot be distinguished by its
	// address, but the cluster has needed longer than the grace to notice that anyway.
	moveGrace = time.Second
)

var errMoved = errors.New("the key has another owner by now, and this server has not answered")

// watch gives up an attempt without a response when the key has had another owner for moveGrace. TCP only
// notices after minutes that a host has vanished, and never that a process is paused.
type watch struct {
	router *router
	way    route
	cancel context.CancelFunc

	mu      sync.Mutex
	timer   *time.Timer
	moved   time.Time // when the key got another owner
	ended   bool
	gaveUp  bool
	problem any // a panic of Place
}

// watch returns the context of an attempt, which it watches until end is called.
func (t *router) watch(ctx context.Context, way route) (context.Context, *watch) {
	w := &watch{router: t, way: way}
	ctx, w.cancel = context.WithCancel(ctx) // the end of the request also ends the context of a response
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(lookEvery, w.look)
	return ctx, w
}

// look runs in the goroutine of the timer, so a response does not wait for a slow Place.
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

// elsewhere reports whether the key has another owner that can be asked.
func (w *watch) elsewhere() bool {
	addr, _, err := w.router.cfg.Place(w.way.key)
	if err != nil || addr == w.way.addr {
		return false
	}
	_, err = w.router.target(addr)
	return err == nil
}

// end ends the watch, and reports whether the attempt was given up. It does not end the body of a response.
// If Place has panicked, end panics in the goroutine of the request. A nil watch was never begun.
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
