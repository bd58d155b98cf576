//go:build !unix

package tour

import (
	"errors"
	"syscall"
)

var errNoPause = errors.New("tour: processes cannot be paused on this system")

func (c *child) pause() error  { return errNoPause }
func (c *child) resume() error { return errNoPause }

// ownGroup keeps the signals of the terminal away from a child, where that is
// possible.
func ownGroup() *syscall.SysProcAttr { return nil }
