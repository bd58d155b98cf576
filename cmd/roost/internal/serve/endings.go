package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is the error of an agent that was ended by a second signal.
var ErrInterrupted = errors.New("interrupted")

// watchEndings waits for the reasons to end an agent. The first signal, or the end of ctx, ends the context
// orderly, so that the agent leaves. After the second signal or, if stdinCloses is set, at the end of stdin,
// the process has to exit now, and atOnce receives its result.
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
