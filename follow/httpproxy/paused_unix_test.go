//go:build unix

package httpproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The process of the owner is paused: the kernel goes on to accept what the proxy sends (S7.2).
func TestOwnerPaused(t *testing.T) { vanishing(t, "is paused", pausable) }

// pausable runs a server in a process of its own, which can be paused.
func pausable(t *testing.T) (addr string, pause func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPausable$")
	cmd.Env = append(os.Environ(), "PAUSABLE=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		var status syscall.WaitStatus // its threads may run for a moment longer
		for !status.Stopped() {
			if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				t.Fatal(err)
			}
		}
	}
}

// TestPausable is the process of pausable. It ends with its standard input.
func TestPausable(t *testing.T) {
	if os.Getenv("PAUSABLE") == "" {
		return
	}
	addr, _ := server(t, named("first"))
	fmt.Println(addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
