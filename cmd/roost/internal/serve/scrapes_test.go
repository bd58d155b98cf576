package serve

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// Clients that ask for metrics again and again and read nothing keep no scraper out.
func TestDeafScrapers(t *testing.T) {
	a := settings.Agent{HTTP: "127.0.0.1:0"}
	w, err := listenHTTP(t.Context(), a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.server.Close() })
	for range 8 {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := conn.Write([]byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200))); err != nil {
			t.Fatal(err)
		}
		_, _ = bufio.NewReaderSize(conn, 16).ReadByte() // it is being answered
	}
	for i := range 8 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+"/metrics", nil)
		r.Header.Set("Accept", fmt.Sprintf("text/plain;q=0.%d", i+1)) // each is gathered anew
		resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "go_goroutines") {
			t.Errorf("a scraper gets %s, %v: %.100s", resp.Status, err, body)
		}
	}
}
