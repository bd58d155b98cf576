//go:build unix

package agentproc

import (
	"os/exec"
	"syscall"
)

// Pause stops the process with SIGSTOP.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume continues a stopped process.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
}
