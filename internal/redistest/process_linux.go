package redistest

import (
	"os/exec"
	"syscall"
)

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT

// dieWithTest makes the kernel kill the server if the test process dies before its
// cleanup, as on a panic or a timeout.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
