package clusterhttp

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Tests that pipes on virtual time cannot do: real sockets with their buffers, and HTTP/2,
// which treats deadlines in another way.

// A client that never reads fills the sockets' buffers, and is dropped.
func TestSlowReaderOverTCP(t *testing.T) {
	h := newAPI(solo(t, 65536), Options{Log: quiet})
	h.sendTime = 200 * time.Millisecond
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		return ctx
	}
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	listen(t, conn, nil) // reads only the headers; the first batch has 2 MB
	waitFor(t, "a stream", func() bool { return len(h.streams) == 1 })
	waitFor(t, "the stream to be dropped", func() bool { return len(h.streams) == 0 })
}

// Neither silence for longer than the time of one write nor the server's timeouts end a
// stream.
func TestQuietStream(t *testing.T) {
	agent := solo(t, 16)
	for _, http2 := range []bool{false, true} {
		h := newAPI(agent, Options{Log: quiet, KeepAlive: 400 * time.Millisecond})
		h.sendTime = 150 * time.Millisecond
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = http2
		srv.Config.ReadTimeout = 200 * time.Millisecond
		srv.Config.WriteTimeout = 200 * time.Millisecond
		srv.StartTLS()
		resp, err := srv.Client().Get(srv.URL + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		if (resp.ProtoMajor == 2) != http2 {
			t.Fatalf("this is HTTP/%d", resp.ProtoMajor)
		}
		var text strings.Builder
		buf := make([]byte, 4<<10)
		for strings.Count(text.String(), ": keep-alive") < 2 {
			n, err := resp.Body.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				t.Errorf("HTTP/%d: the stream broke off: %v", resp.ProtoMajor, err)
				break
			}
		}
		_ = resp.Body.Close()
		srv.Close()
	}
}
