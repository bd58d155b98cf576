package fleettest

import (
	"os/exec"
	"syscall"
)

// dieWithTest has the kernel kill a node when the test process dies before it
// could clean up: a node that is stopped would not see that its input ends.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
