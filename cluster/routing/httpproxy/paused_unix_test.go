//go:build unix

package httpproxy_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// The owner's process is paused, but its kernel still accepts what the proxy sends.
func TestOwnerPaused(t *testing.T) { vanishing(t, "is paused", pausable) }

// pausable runs a server in a separate process. The returned function pauses that process.
func pausable(t *testing.T) (addr string, pause func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPausable$")
	cmd.Env = append(os.Environ(), "PAUSABLE=1")
	p := agenttest.Start(t, cmd)
	redistest.Until(t, "an address", func() bool { return strings.HasSuffix(p.Log.String(), "\n") })
	return strings.TrimSpace(p.Log.String()), func() {
		if err := p.Pause(); err != nil {
			t.Error(err)
		}
		var status syscall.WaitStatus // wait, because threads of the process may run for a moment longer
		for !status.Stopped() {
			if _, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				t.Fatal(err)
			}
		}
	}
}

// TestPausable is the process that pausable starts. The process ends when its standard input is closed.
func TestPausable(t *testing.T) {
	if os.Getenv("PAUSABLE") == "" {
		return
	}
	addr, _ := server(t, named("first"))
	fmt.Println(addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
