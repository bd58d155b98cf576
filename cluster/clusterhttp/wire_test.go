package clusterhttp

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// These tests need real sockets with their buffers, and HTTP/2, which handles deadlines differently. In-memory pipes
// have neither. In TestCrowd, some clients never read.

// A stream continues even if no event occurs for longer than one write may take, or for longer than the server's
// timeouts. The times are long, because a busy machine may be slow to begin a response.
func TestQuietStream(t *testing.T) {
	agent := solo(t, 16)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2: ", http2), func(t *testing.T) {
			t.Parallel()
			h := newAPI(agent, Options{Log: quiet, KeepAlive: 2 * time.Second})
			h.sendTime = 1500 * time.Millisecond
			srv := httptest.NewUnstartedServer(h)
			defer srv.Close()
			srv.EnableHTTP2 = http2
			srv.Config.ReadTimeout = h.sendTime
			srv.Config.WriteTimeout = h.sendTime
			srv.StartTLS()
			resp, err := srv.Client().Get(srv.URL + "/v1/events")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if (resp.ProtoMajor == 2) != http2 {
				t.Fatalf("this is HTTP/%d", resp.ProtoMajor)
			}
			var text strings.Builder
			buf := make([]byte, 4<<10)
			for strings.Count(text.String(), ": keep-alive") < 2 {
				n, err := resp.Body.Read(buf)
				text.Write(buf[:n])
				if err != nil {
					t.Fatalf("the stream broke off: %v", err)
				}
			}
		})
	}
}
