//go:build unix

package tour

import "syscall"

// ownGroup keeps the signals of the terminal away from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
