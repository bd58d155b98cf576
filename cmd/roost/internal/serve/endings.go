package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is the error of an agent that was stopped by a second signal.
var ErrInterrupted = errors.New("interrupted")

// watchEndings returns a context that ends at the first signal or when ctx ends. The agent then leaves. After a second
// signal, atOnce receives ErrInterrupted, and the process must exit immediately. If stdinCloses is set, atOnce receives
// nil when stdin ends, and the process must also exit immediately.
func watchEndings(ctx context.Context, stdin io.Reader, stdinCloses bool) (orderly context.Context, atOnce <-chan error, stop func()) {
	orderly, leave := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	now := make(chan error, 2)
	if stdinCloses {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			now <- nil
		}()
	}
	done := make(chan struct{})
	go func() {
		for _, act := range []func(){leave, func() { now <- ErrInterrupted }} {
			select {
			case <-signals:
				act()
			case <-done:
				return
			}
		}
	}()
	return orderly, now, func() {
		signal.Stop(signals)
		close(done)
		leave()
	}
}
