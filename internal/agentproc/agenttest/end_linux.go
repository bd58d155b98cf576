package agenttest

import (
	"os/exec"
	"syscall"
)

const stopSignal = syscall.SIGSTOP

// endWithTest makes the kernel kill the process when the test's process dies before its cleanup, because a
// stopped child would not notice that its standard input has closed.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
