//go:build !linux

package redistest

import (
	"os/exec"
	"syscall"
	"testing"
)

// SIGSTOP and SIGCONT as macOS and the BSDs number them. Windows has no such
// signals; there the package compiles, and Pause fails the test.
const stop, resume = syscall.Signal(17), syscall.Signal(19)

func dieWithTest(*exec.Cmd) {}

func reserve(testing.TB, int) bool { return true }
