package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestDiesWithTest starts this program again as a test process with a server, kills it, and checks that the server
// ends.
func TestDiesWithTest(t *testing.T) {
	const child = "REDISTEST_CHILD"
	if os.Getenv(child) != "" {
		fmt.Fprintln(os.Stderr, Start(t).Addr())
		<-t.Context().Done() // never returns, because the process is killed
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir()) // for its files
	dieWithTest(cmd)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimSpace(line)
	if !dials(addr) {
		t.Fatalf("no server at %q", addr)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	Eventually(t, "end of the server", func() error {
		if dials(addr) {
			return fmt.Errorf("%s still runs", addr)
		}
		return nil
	})
}

func dials(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// TestPortIsReserved: once a port has been given to a test, no other process gets it, even before the server listens.
func TestPortIsReserved(t *testing.T) {
	const child = "REDISTEST_PORT"
	if port, err := strconv.Atoi(os.Getenv(child)); err == nil {
		fmt.Println("free:", free(port), "reserved:", reserve(t, port))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), fmt.Sprint(child, "=", FreePort(t)))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "free: true reserved: false\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
