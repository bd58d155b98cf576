//go:build unix

package tour

import "syscall"

func (c *child) pause() error  { return c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *child) resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// ownGroup keeps the signals of the terminal away from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
