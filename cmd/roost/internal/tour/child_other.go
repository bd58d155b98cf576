//go:build !unix

package tour

import "syscall"

// ownGroup keeps the signals of the terminal away from a child, where that is
// possible.
func ownGroup() *syscall.SysProcAttr { return nil }
