package redistest

import (
	"os/exec"
	"syscall"
)

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT

// dieWithTest has the kernel kill the server when the test process dies before
// it could clean up, as on a panic or a timeout.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
