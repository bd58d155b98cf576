package clusterhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
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

// A server, a client and a leave over real sockets.
func TestOverTCP(t *testing.T) {
	agent := solo(t, 16)
	srv := NewServer(Handler(agent, Options{Log: quiet, Token: token}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &Client{Base: listener.Addr().String(), Token: token, HTTP: &http.Client{Transport: transport}}

	if placed, err := client.Place(t.Context(), "room-1"); err != nil || placed.Owner.ID != "solo" {
		t.Errorf("%+v, %v", placed, err)
	}
	batches := 0
	for b, err := range client.Events(t.Context()) {
		if err != nil {
			break
		}
		switch batches++; batches {
		case 1:
			if len(b.Acquired) != 16 {
				t.Errorf("first batch %+v", b)
			}
			if _, err := client.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		case 2:
			if len(b.Released) != 16 {
				t.Errorf("second batch %+v", b)
			}
		}
	}
	if batches < 2 {
		t.Errorf("%d batches", batches)
	}
	waitFor(t, "the agent to leave", func() bool { return client.Ready(t.Context()) != nil })
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	_, err = client.Members(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no agent answers at "+listener.Addr().String()) {
		t.Errorf("after the end: %v", err)
	}
}

// waitFor polls for a condition without a channel to wait on.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timeout: %s", what)
		}
	}
}
