//go:build unix

package settings

import (
	"os"
	"syscall"
)

// exposed reports whether unauthorized users can read a file that holds a secret. If root owns
// the file, its group may read it, because this is how Kubernetes and administrators pass a secret to a process that
// does not run as root.
func exposed(info os.FileInfo) bool {
	others, group := info.Mode().Perm()&0o004 != 0, info.Mode().Perm()&0o040 != 0
	stat, ok := info.Sys().(*syscall.Stat_t)
	return others || group && (!ok || stat.Uid != 0)
}

// giveAway changes the owner and group of a file to those of another file.
func giveAway(f *os.File, like os.FileInfo) error {
	stat, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}
