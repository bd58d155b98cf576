//go:build !linux

package agenttest

import (
	"os/exec"
	"syscall"
)

const stopSignal = syscall.Signal(-1) // no signal: without /proc, a test cannot wait until a process has stopped

func endWithTest(*exec.Cmd) {}
