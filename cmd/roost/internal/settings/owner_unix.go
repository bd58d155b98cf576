//go:build unix

package settings

import (
	"os"
	"syscall"
)

// exposed reports whether users read a file who should not read a secret. A group may read a file of root:
// so Kubernetes and administrators hand secrets to a process of another user.
func exposed(info os.FileInfo) bool {
	others, group := info.Mode().Perm()&0o004 != 0, info.Mode().Perm()&0o040 != 0
	stat, ok := info.Sys().(*syscall.Stat_t)
	return others || group && (!ok || stat.Uid != 0)
}

// giveAway gives a file the owner of another one.
func giveAway(f *os.File, like os.FileInfo) error {
	stat, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}
