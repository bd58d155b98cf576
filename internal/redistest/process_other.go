//go:build !linux

package redistest

import (
	"os/exec"
	"syscall"
	"testing"
)

// stop and resume are SIGSTOP and SIGCONT with their numbers on macOS and the BSDs. Windows has no such signals, so the
// package compiles there, but Pause fails the test.
const stop, resume = syscall.Signal(17), syscall.Signal(19)

func dieWithTest(*exec.Cmd) {}

func reserve(testing.TB, int) bool { return true }
