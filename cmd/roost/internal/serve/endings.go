package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is the error of an agent that two signals ended.
var ErrInterrupted = errors.New("interrupted")

// watchEndings waits for the reasons to end an agent. The first signal ends the context
// orderly, as does ctx: the agent leaves. atOnce receives the result of a process that
// has to exit now: after the second signal, or, if stdinCloses, at the end of stdin.
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
