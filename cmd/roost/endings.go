package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// watchEndings listens for what ends an agent's process. The context ends when
// it is to leave in good order: at the first signal, or with ctx. From atOnce
// comes the result of a process that is to exit now: at the second signal, or
// when stdin ends, if that is to matter.
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
		for n := 1; ; n++ {
			select {
			case <-signals:
			case <-done:
				return
			}
			if n == 2 {
				now <- errInterrupted
				return
			}
			leave()
		}
	}()
	return orderly, now, func() {
		signal.Stop(signals)
		close(done)
		leave()
	}
}
