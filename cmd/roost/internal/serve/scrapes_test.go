package serve

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// TestDeafScrapers: clients that request metrics again and again but read nothing cannot keep other scrapers from
// getting an answer.
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
		_, _ = bufio.NewReaderSize(conn, 16).ReadByte() // the answer has begun
	}
	for i := range 8 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+"/metrics", nil)
		r.Header.Set("Accept", fmt.Sprintf("text/plain;q=0.%d", i+1)) // so that each answer is gathered again
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

// deafClient blocks each write of a body until the test releases it.
type deafClient struct {
	*httptest.ResponseRecorder
	waiting *atomic.Int32
	release chan struct{}
}

func (c deafClient) Write(b []byte) (int, error) {
	c.waiting.Add(1)
	<-c.release
	return c.ResponseRecorder.Write(b)
}

// TestDeafScrapersShare: clients that don't read share an answer, even if each accepts a different format.
func TestDeafScrapersShare(t *testing.T) {
	const clients = 200
	var gathered, waiting atomic.Int32
	s := &scrapes{gather: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gathered.Add(1)
		_, _ = io.WriteString(w, "asked for "+r.Header.Get("Accept"))
	})}
	began, release, answers := time.Now(), make(chan struct{}), make(chan string)
	for i := range clients {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", fmt.Sprintf("text/plain;x=%d", i))
		c := deafClient{httptest.NewRecorder(), &waiting, release}
		go func() {
			s.ServeHTTP(c, r)
			answers <- c.Body.String()
		}()
	}
	for waiting.Load() < clients {
		time.Sleep(time.Millisecond)
	}
	own, limit := fewScrapes, fewScrapes+1+int(time.Since(began)/scrapeFresh)
	if n := int(gathered.Load()); n <= own || n > limit {
		t.Errorf("%d deaf clients hold %d answers, want at most %d", clients, n, limit)
	}
	close(release)
	for range clients {
		if a := <-answers; a != "asked for " {
			own--
		}
	}
	if own != 0 {
		t.Errorf("%d of the first %d clients did not get the format they asked for", own, fewScrapes)
	}
	if s.underWay.Load() != 0 {
		t.Errorf("%d answers are under way at the end", s.underWay.Load())
	}
}
