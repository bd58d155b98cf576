//go:build !unix

package settings

import "os"

// exposed knows no permissions here: Go invents the bits of a mode.
func exposed(os.FileInfo) bool { return false }
