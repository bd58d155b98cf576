package clusterhttp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// listener is a client that reads the raw bytes of the stream.
type listener struct {
	t      *testing.T
	conn   net.Conn
	status int
	header http.Header
	in     *bufio.Reader
	id     string // id of the last batch
}

// listen requests the stream and reads the response's headers. The request's headers have the form "Name: value".
func listen(t *testing.T, conn net.Conn, err error, headers ...string) *listener {
	t.Helper()
	return listenTo(t, conn, err, "/v1/events", headers...)
}

func listenTo(t *testing.T, conn net.Conn, err error, target string, headers ...string) *listener {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	request := append([]string{"GET " + target + " HTTP/1.1", "Host: a"}, headers...)
	fmt.Fprintf(conn, "%s\r\n\r\n", strings.Join(request, "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // close the connection first, because closing the body would read the rest
		_ = resp.Body.Close()
	})
	return &listener{t: t, conn: conn, status: resp.StatusCode, header: resp.Header, in: bufio.NewReader(resp.Body)}
}

// next returns the lines of the next event or comment, or nil at the end of the stream.
func (l *listener) next() (lines []string) {
	l.t.Helper()
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return nil
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

func (l *listener) batch() (b events.Batch) {
	l.t.Helper()
	lines := l.next()
	if len(lines) != 3 || lines[1] != "event: batch" || !strings.HasPrefix(lines[2], "data: ") {
		l.t.Fatalf("not a batch: %.300q", lines)
	}
	if err := json.Unmarshal([]byte(lines[2][len("data: "):]), &b); err != nil {
		l.t.Fatal(err)
	}
	if want := fmt.Sprintf("-%d", b.Version); !strings.HasPrefix(lines[0], "id: ") || !strings.HasSuffix(lines[0], want) {
		l.t.Errorf("%s, want one that ends in %s", lines[0], want)
	}
	l.id = strings.TrimPrefix(lines[0], "id: ")
	return b
}

func partitions(owned []events.Ownership) (list []placement.Partition) {
	for _, o := range owned {
		list = append(list, o.Partition)
	}
	return list
}

func TestStream(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		p := serve(t, NewServer(h))
		l := p.listen(t)
		if ct := l.header.Get("Content-Type"); l.status != 200 || ct != "text/event-stream" || l.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %q", l.status, ct)
		}

		owned := h.agent.Owned()
		first := l.batch()
		diff := cmp.Diff(owned, partitions(first.Acquired))
		if diff != "" || len(first.Joined) != 3 || first.Digest != h.agent.Snapshot().Digest() {
			t.Errorf("the first batch does not hold all partitions: %s\n%+v", diff, first)
		}

		begin := time.Now()
		for i := range 3 {
			if got := l.next(); len(got) != 1 || got[0] != ": keep-alive" {
				t.Fatalf("%q, want a comment", got)
			}
			if at := time.Since(begin).Round(time.Second); at != time.Duration(i+1)*15*time.Second {
				t.Errorf("comment %d after %v", i+1, at)
			}
		}

		time.Sleep(10 * time.Second)
		go func() { _ = h.agent.Drain(t.Context()) }()
		if got := l.batch(); len(got.Acquired) > 0 || cmp.Diff(owned, partitions(got.Released)) != "" || len(got.Moved) == 0 {
			t.Errorf("after the drain: %+v", got)
		}
		begin = time.Now()
		if got := l.next(); len(got) != 1 || time.Since(begin).Round(time.Second) != 15*time.Second {
			t.Errorf("%q after %v of silence", got, time.Since(begin))
		}
		go func() { _ = h.agent.Undrain(t.Context()) }()
		if got := l.batch(); cmp.Diff(owned, partitions(got.Acquired)) != "" {
			t.Errorf("after the undrain: %+v", got)
		}
		c.Crash("c")
		if got := l.batch(); len(got.Left) != 1 || got.Left[0] != "c" || len(got.Moved) == 0 {
			t.Errorf("after the crash: %+v", got)
		}

		go func() { _ = h.agent.Close() }()
		if got := l.batch(); len(got.Released) == 0 || len(got.Acquired) > 0 {
			t.Errorf("at the end: %+v", got)
		}
		if got := l.next(); got != nil {
			t.Errorf("after the end: %q", got)
		}
	})
}

// The headers arrive immediately. The first batch arrives when the agent has its first table.
func TestStreamBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Debounce = time.Second }})
		a := c.StartWith("a")
		begin := time.Now()
		l := serve(t, NewServer(Handler(a, Options{Log: quiet}))).listen(t)
		if took := time.Since(begin); took > 0 {
			t.Errorf("the headers took %v", took)
		}
		if b := l.batch(); len(b.Acquired) != placement.DefaultPartitions || time.Since(begin) < time.Second {
			t.Errorf("after %v: %d partitions", time.Since(begin), len(b.Acquired))
		}
	})
}

// A client that does not read is dropped after ten seconds, so another client can have its stream. It does not delay
// other clients.
func TestStreamDropsSlowReader(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		var running atomic.Int32
		p := serve(t, NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Add(-1)
			h.ServeHTTP(w, r)
		})))
		slow := p.listen(t)
		slow.batch()
		keen := p.listen(t)
		keen.batch()

		begin := time.Now()
		go func() { _ = h.agent.Drain(t.Context()) }() // the slow client does not read this event
		keen.batch()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the keen reader waited for %v", took)
		}
		time.Sleep(sendTime - time.Second)
		if n, taken := running.Load(), len(h.streams); n != 2 || taken != 2 {
			t.Errorf("%d handlers run and %d places are taken before the time is over", n, taken)
		}
		go func() { _ = h.agent.Undrain(t.Context()) }()
		keen.batch()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, taken := running.Load(), len(h.streams); n != 1 || taken != 1 {
			t.Errorf("%d handlers run and %d places are taken, want those of the keen reader", n, taken)
		}
		if _, err := slow.conn.Write([]byte("x")); err == nil {
			t.Error("the connection of the slow reader is open")
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	inTrio(t, Options{MaxStreams: 2}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		p := serve(t, NewServer(h))
		first := p.listen(t)
		first.batch()
		second := p.listen(t)
		second.batch()
		w := do(h, "GET", "/v1/events", "")
		expect(t, w, 503, `"code":"busy"`)
		if w.Header().Get("Retry-After") == "" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", w.Header())
		}
		expect(t, do(h, "GET", "/v1/place?key=a", ""), 200, "owner")
		_ = first.conn.Close()
		synctest.Wait()
		third := p.listen(t)
		if third.batch(); third.status != 200 {
			t.Error("the place of a disconnected client is not free")
		}
		expect(t, do(h, "GET", "/v1/events", ""), 503, "busy")
	})
}

// Shutdown waits for other requests but ends streams. A client that does not read delays Shutdown by at most the time
// that one event may take.
func TestShutdownEndsStreams(t *testing.T) {
	for reads, most := range map[bool]time.Duration{true: time.Second, false: sendTime + time.Second} {
		inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
			srv := NewServer(h)
			l := serve(t, srv).listen(t)
			l.batch()
			if reads {
				go func() {
					if got := l.next(); got != nil {
						t.Errorf("%q after the end", got)
					}
				}()
			}
			begin := time.Now()
			for range 2 {
				if err := srv.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(begin); took > most {
				t.Errorf("Shutdown took %v, the client reads: %v", took, reads)
			}
		})
	}
}

// If a middleware's response writer cannot flush, the stream fails instead of delaying events.
func TestStreamNeedsFlush(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		w := httptest.NewRecorder()
		wrapped := struct{ http.ResponseWriter }{w}
		h.ServeHTTP(wrapped, httptest.NewRequest("GET", "http://localhost/v1/events", nil))
		expect(t, w, 500, CodeInternal)
	})
}
