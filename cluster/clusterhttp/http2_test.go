package clusterhttp

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var http2Conns = flag.Int("http2", 20, "connections in TestStreamsOfHTTP2, of 250 requests each")

// TestStreamsOfHTTP2: on each HTTP/2 connection, a client sends 250 requests and does not read the responses. A program
// that mounts the handler in its own server needs little memory, and still answers probes and clients with a token.
func TestStreamsOfHTTP2(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests take their time")
	}
	for _, deaf := range []bool{false, true} {
		for _, path := range []string{"/v1/partitions", "/v1/doctor?over=5s"} {
			t.Run(fmt.Sprintf("%s, deaf: %v", path, deaf), func(t *testing.T) {
				addr := startCrowdServer(t, 0)
				c := &crowdOf{t, addr, &Client{Base: addr, Token: token, HTTP: &http.Client{Timeout: time.Minute}}}
				defer c.client.HTTP.CloseIdleConnections()
				before := c.costs()
				conns := make([]*h2Conn, *http2Conns)
				for i := range conns {
					conns[i] = dialHTTP2(t, addr, deaf)
				}
				for _, conn := range conns {
					conn.ask(path, 250)
				}
				all := 250 * len(conns)
				c.await("all requests have arrived", func(now costs) bool { return now.Requests == all })
				if _, err := c.client.Partitions(t.Context()); err != nil {
					t.Errorf("a client with a token: %v", err)
				}
				if resp, err := c.client.HTTP.Get("http://" + addr + "/healthz"); err != nil {
					t.Errorf("a probe: %v", err)
				} else if _ = resp.Body.Close(); resp.StatusCode != 200 {
					t.Errorf("a probe: %d", resp.StatusCode)
				}
				after := c.costs()
				t.Logf("%d requests: %d MB at most, %d MB before; %d goroutines", all, after.PeakMemory>>20, before.PeakMemory>>20, after.Goroutines)
				if grown := after.PeakMemory - before.PeakMemory; !underRace && grown > 200<<20 {
					t.Errorf("the server has grown by %d MB", grown>>20)
				}
				// On a busy machine, the goroutines of rejected requests take a while to end.
				most := 1024 + maxCalls + maxRejected + 10*len(conns) + 100
				c.await(fmt.Sprintf("at most %d goroutines are left", most), func(now costs) bool { return now.Goroutines <= most })
			})
		}
	}
}

// h2Conn is the connection of a client that sends requests but never finishes reading a response.
type h2Conn struct {
	net.Conn

	t      *testing.T
	framer *http2.Framer
}

// dialHTTP2 opens a connection with a flow-control window of 0, so the server cannot send a body. If deaf, the window is
// large, but the client reads nothing from the connection.
func dialHTTP2(t *testing.T, addr string, deaf bool) *h2Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &h2Conn{Conn: conn, t: t, framer: http2.NewFramer(conn, conn)}
	window := uint32(0)
	if deaf {
		window = 1 << 20
		_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	}
	_, err = conn.Write([]byte(http2.ClientPreface))
	if err == nil {
		err = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err != nil {
		t.Fatal(err)
	}
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	return c
}

// ask sends requests.
func (c *h2Conn) ask(path string, n int) {
	for i := range n {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		err := c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      uint32(2*i + 1),
			BlockFragment: block.Bytes(),
			EndStream:     true,
			EndHeaders:    true,
		})
		if err != nil {
			c.t.Error(err)
			return
		}
	}
}
