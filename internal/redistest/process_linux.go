package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT

// dieWithTest makes the kernel kill the server if the test process dies before its cleanup, for example
// because of a panic or a timeout.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// reservations is a file with one byte for each port. A lock on a byte reserves the port. The file stays
// open, because closing it would release the locks. Each user has a separate file, because users cannot open
// each other's files.
var reservations = sync.OnceValues(func() (*os.File, error) { //nolint:gochecknoglobals // one for a process
	name := fmt.Sprint("roost-test-ports-", os.Getuid())
	return os.OpenFile(filepath.Join(os.TempDir(), name), os.O_RDWR|os.O_CREATE, 0o600)
})

// reserve reserves a port for this process until it exits. It returns false if another process of this user
// has reserved the port.
func reserve(tb testing.TB, port int) bool {
	tb.Helper()
	f, err := reservations()
	if err != nil {
		tb.Fatal("ports cannot be reserved:", err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1}
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock) == nil
}
