package agenttest

import (
	"os/exec"
	"syscall"
)

const stopSignal = syscall.SIGSTOP

// endWithTest makes the kernel kill the process if the test process dies before its cleanup. This is
// necessary because a stopped child process does not notice that its standard input was closed.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
