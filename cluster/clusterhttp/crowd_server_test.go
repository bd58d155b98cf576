package clusterhttp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// crowdServer is the environment variable that makes this test binary the server of
// TestCrowd, so that its files and memory are separate from those of the clients.
const crowdServer = "ROOST_TEST_CROWD_SERVER"

// costs are the resources of the server's process.
type costs struct {
	Streams    int
	Goroutines int
	PeakMemory int64 // peak of resident bytes
}

// serveCrowd starts a node, prints its address, and ends with its input.
func serveCrowd() error {
	a, err := cluster.Start(context.Background(), cluster.Config{
		ID: "solo", Bind: "127.0.0.1:0", Bootstrap: true, Network: cluster.Local,
		LeaseTTL:   time.Minute, // a busy machine must not fence it
		Partitions: 256, Log: quiet,
	})
	if err != nil {
		return err
	}
	defer a.Close()
	<-a.Ready()
	h := newAPI(a, Options{Log: quiet, MaxStreams: crowd})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("/costs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(costs{len(h.streams), runtime.NumGoroutine(), peakMemory()})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := NewServer(mux)
	srv.ConnState = nil // more connections than its limit
	defer srv.Close()
	go srv.Serve(listener)
	fmt.Println(listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func peakMemory() (bytes int64) {
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscanf(rest, "%d kB", &bytes)
	}
	return bytes << 10
}

// startCrowdServer returns the address of a server in a process of its own.
func startCrowdServer(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crowdServer+"=1")
	cmd.Stderr = os.Stderr
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
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return strings.TrimSpace(addr)
}
