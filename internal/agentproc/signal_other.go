//go:build !unix

package agentproc

import (
	"errors"
	"os/exec"
)

// Pause and Resume fail, because this system cannot pause a process.
func (p *Process) Pause() error  { return errors.ErrUnsupported }
func (p *Process) Resume() error { return errors.ErrUnsupported }

func ownGroup(*exec.Cmd) {}
