package httpproxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lookEvery is how often the proxy looks up the owner of a key while its server has not responded.
	lookEvery = 200 * time.Millisecond

	// moveGrace is how long a server may still respond after its key has moved. Most keys move away from live
	// servers, because these servers drain or because a join took some of their keys. Waiting for the
	// response of a live server costs less than running the request again. The proxy cannot distinguish a
	// vanished server from a live one, but the cluster needs longer than this grace time to notice a vanished
	// server anyway.
	moveGrace = time.Second
)

var errMoved = errors.New("the key now has another owner, and this server has not answered")

// watch cancels an attempt without a response, or closes a WebSocket, when the key has had another owner for
// moveGrace. TCP needs minutes to notice that a host has vanished, and never notices that a process is paused.
type watch struct {
	router *router
	way    route
	every  time.Duration
	cancel context.CancelFunc // called in the goroutine of the timer

	mu      sync.Mutex
	timer   *time.Timer
	moved   time.Time // since when the key has had another owner
	ended   bool
	gaveUp  bool
	problem any // value of a panic in Place
}

// watch returns the context of an attempt, and watches the attempt until end is called.
func (t *router) watch(ctx context.Context, way route) (context.Context, *watch) {
	w := &watch{router: t, way: way, every: lookEvery}
	ctx, w.cancel = context.WithCancel(ctx) // if end does not cancel the context, the end of the request cancels it
	w.start()
	return ctx, w
}

func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer = time.AfterFunc(w.every, w.look)
	}
}

// look runs in the goroutine of the timer, so that a response does not have to wait for a slow Place.
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
	w.timer.Reset(w.every)
}

// elsewhere reports whether the key has another owner with a valid address.
func (w *watch) elsewhere() bool {
	addr, _, err := w.router.cfg.Place(w.way.key)
	if err != nil || addr == w.way.addr {
		return false
	}
	_, err = w.router.target(addr)
	return err == nil
}

// end stops the watch, and reports whether the watch canceled the attempt. If the server has answered, end
// does not cancel the context, so the caller can still read the response body. If Place has panicked, end
// panics in the goroutine of the request. If w is nil, end does nothing.
func (w *watch) end(answered bool) (gaveUp bool) {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if !answered {
		w.cancel()
	}
	if problem := w.problem; problem != nil {
		w.problem = nil
		panic(problem)
	}
	return w.gaveUp
}
