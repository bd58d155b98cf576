package clusterhttp

import (
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/agentproc"
)

// crowdServer is an environment variable. If it is set, this test binary runs the server of TestCrowd, so that the
// server's files and memory are separate from the clients'. Its value is the number of clients, or 0 for the server of
// TestStreamsOfHTTP2.
const crowdServer = "ROOST_TEST_CROWD_SERVER"

// costs are the resources of the server's process.
type costs struct {
	Streams    int
	Requests   int // requests to the API so far
	Goroutines int
	PeakMemory int64 // peak of resident bytes
}

// serveCrowd starts a node, prints its address, and ends when its standard input ends.
func serveCrowd(clients int) error {
	a, err := cluster.Start(context.Background(), soloConfig(256))
	if err != nil {
		return err
	}
	defer a.Close()
	<-a.Ready()
	h := newAPI(a, Options{Log: quiet, MaxStreams: clients})
	if underRace {
		h.sendTime = 4 * time.Second // the default is in TestStreamDropsSlowReader
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("/costs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(costs{Streams: len(h.streams), Goroutines: runtime.NumGoroutine(), PeakMemory: peakMemory()})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := NewServer(mux)
	srv.ConnState = nil // allow more connections than the server's limit
	return untilInputEnds(srv, listener)
}

func untilInputEnds(srv *http.Server, listener net.Listener) error {
	defer srv.Close()
	go srv.Serve(listener)
	fmt.Printf(`{"msg":"agent running","http":%q}`+"\n", listener.Addr()) // as agentproc expects it
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// serveEmbedded does the same as serveCrowd, with the program's own server around the handler.
func serveEmbedded() error {
	a, err := cluster.Start(context.Background(), soloConfig(8192))
	if err != nil {
		return err
	}
	defer a.Close()
	<-a.Ready()
	h := newAPI(a, Options{Log: quiet, Token: token})
	var arrived atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		h.ServeHTTP(w, r)
	})
	mux.HandleFunc("/costs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(costs{Requests: int(arrived.Load()), Goroutines: runtime.NumGoroutine(), PeakMemory: peakMemory()})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return untilInputEnds(srv, listener)
}

func peakMemory() (bytes int64) {
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscanf(rest, "%d kB", &bytes)
	}
	return bytes << 10
}

// startCrowdServer returns the address of a server in a separate process.
func startCrowdServer(t *testing.T, clients int) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", crowdServer, clients))
	p, err := agentproc.Start(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stdin.Close()
		<-p.Done()
		if !p.State().Success() {
			t.Errorf("the server: %v\n%s", p.State(), p.Log)
		}
	})
	addrs, err := p.Await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addrs.HTTP
}
