package clusterhttp

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Pipes on virtual time cannot do this: real sockets with their buffers, and HTTP/2,
// which treats deadlines in another way. TestCrowd has clients that never read.

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
