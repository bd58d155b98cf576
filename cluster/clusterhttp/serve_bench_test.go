package clusterhttp

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// BenchmarkServe compares the API over TCP with a handler that writes a constant. Both run in a server from NewServer.
func BenchmarkServe(b *testing.B) {
	agent := solo(b, 1024)
	second(b, agent)
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer rooms.Close()
	api := Handler(agent, Options{Log: quiet, Rooms: rooms})
	ours, theirs := keyAt(b, agent, "solo"), keyAt(b, agent, "second")
	const room = `{"size":4}`
	bare := constant(do(api, "GET", "/v1/place?key="+ours, "").Body.Bytes())
	get := func(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	for _, c := range []struct {
		name    string
		h       http.Handler
		request string
	}{
		{"bare", bare, get("/v1/place?key=" + ours)},
		{"place", api, get("/v1/place?key=" + ours)},
		{"place-elsewhere", api, get("/v1/place?key=" + theirs)},
		{"owners", api, get("/v1/owners?n=3&key=" + ours)},
		{"bare-post", bare, post("/v1/rooms/room-1/resolve", room)},
		{"resolve", api, post("/v1/rooms/room-1/resolve", room)},
	} {
		b.Run(c.name, func(b *testing.B) { callAll(b, NewServer(c.h), c.request) })
	}
}

// constant is the cheapest handler: it writes constant JSON.
func constant(answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}

// second starts a node that joins agent's node, and waits until both own partitions.
func second(b *testing.B, agent *cluster.Agent) {
	b.Helper()
	cfg := soloConfig(agent.Config().Partitions)
	cfg.ID, cfg.Bootstrap, cfg.Join = "second", false, []string{agent.Addr()}
	other, err := cluster.Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = other.Close() })
	waitFor(b, "the second node to join", func() bool { return len(agent.Snapshot().Table.Nodes()) == 2 })
}

func post(target, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		target, len(body), body)
}

// callAll sends b.N requests to srv over persistent connections. Each connection has one request in progress at a time.
func callAll(b *testing.B, srv *http.Server, request string) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = srv.Serve(listener) }()
	defer srv.Close()
	callers := make([]*caller, 16)
	for i := range callers {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		callers[i] = &caller{conn: conn, answers: bufio.NewReader(conn), request: []byte(request)}
		if err := callers[i].call(); err != nil {
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, b.N) // nanoseconds of each call, caller by caller
	var calling sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i, c := range callers {
		calling.Go(func() {
			for n := i; n < b.N; n += len(callers) {
				begin := time.Now()
				if err := c.call(); err != nil {
					b.Error(err)
					return
				}
				took[n] = time.Since(begin)
			}
		})
	}
	calling.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
}

// caller is a client that needs less CPU time than the server. It sends constant bytes, and reads only the status and
// the length of a response.
type caller struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

func (c *caller) call() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	status, err := c.answers.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answered %q", status)
	}
	length := 0
	for {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if digits, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(digits))); err != nil {
				return err
			}
		}
	}
	_, err = c.answers.Discard(length)
	return err
}
