package clusterhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sse"
)

// perStream limits the server's memory per stream, including garbage. docs/dev/benchmarks.md has the measured memory.
const perStream = 64 << 10

var crowd = flag.Int("crowd", wantedCrowd,
	"clients in TestCrowd: 10 at least, and some 4,000 at most under the race detector, which allows 8,128 goroutines")

// TestCrowd connects many clients to the events of one agent. Every tenth client never reads. The others receive every
// change, lookups work, and the agent's memory stays bounded. The agent drops the clients that do not read, and
// releases the resources of all clients at the end.
func TestCrowd(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of connections take their time")
	}
	if *crowd < 10 {
		t.Fatalf("a crowd of %d has none that never reads, want 10 at least", *crowd)
	}
	addr := startCrowdServer(t, *crowd)
	needFiles(t, uint64(*crowd)+100)
	c := &crowdOf{t, addr, &Client{Base: addr, HTTP: &http.Client{Timeout: time.Minute}}}
	defer c.client.HTTP.CloseIdleConnections()
	before := c.costs()

	begin := time.Now()
	var readers []*streamReader
	var deaf []net.Conn
	for i := range *crowd {
		conn := c.dial()
		if i%10 == 0 {
			_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
			deaf = append(deaf, conn)
			continue
		}
		readers = append(readers, &streamReader{conn: conn})
	}
	var following sync.WaitGroup
	for _, r := range readers {
		following.Go(r.follow)
	}
	c.await("all streams are open", func(now costs) bool { return now.Streams == *crowd })
	open := c.costs()
	t.Logf("%d streams in %v: %d kB and %.1f goroutines each", *crowd, time.Since(begin).Round(time.Millisecond),
		(open.PeakMemory-before.PeakMemory)/int64(*crowd)>>10, float64(open.Goroutines-before.Goroutines)/float64(*crowd))

	begin = time.Now()
	const changes = 10 // each as large as the whole table
	for range changes / 2 {
		c.drainAndBack()
	}
	now, err := c.client.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range readers {
		if err := r.await(now.Version, now.Partitions); err != nil {
			t.Fatalf("reader %d: %v", i, err)
		}
	}
	t.Logf("%d changes until the last of %d readers had the last: %v", changes, len(readers), time.Since(begin).Round(time.Millisecond))
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	c.await("those who do not read are dropped", func(now costs) bool {
		select {
		case <-again.C: // the kernel may still buffer their events
			c.drainAndBack()
		default:
		}
		return now.Streams == len(readers)
	})
	after := c.costs()
	t.Logf("at most %d MB were resident, %d kB for each stream", after.PeakMemory>>20, (after.PeakMemory-before.PeakMemory)/int64(*crowd)>>10)
	if grown := after.PeakMemory - before.PeakMemory; !underRace && grown > int64(*crowd)*perStream {
		t.Errorf("the server has grown by %d MB, %d kB for each stream", grown>>20, grown/int64(*crowd)>>10)
	}

	for _, conn := range deaf {
		_ = conn.Close()
	}
	for _, r := range readers {
		_ = r.conn.Close()
	}
	following.Wait()
	c.await("nothing is left", func(now costs) bool { return now.Streams == 0 && now.Goroutines < before.Goroutines+20 })
}

// needFiles fails the test if the process may not open n files.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n {
		t.Fatalf("%d open files are needed, %d are allowed: raise the hard limit (ulimit -Hn)", n, limit.Cur)
	}
}

// crowdOf is the server as its clients see it.
type crowdOf struct {
	t      *testing.T
	addr   string
	client *Client
}

// dial requests a stream but does not read the response.
func (c *crowdOf) dial() net.Conn {
	c.t.Helper()
	conn, err := net.DialTimeout("tcp", c.addr, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: %s\r\n\r\n", c.addr); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *crowdOf) costs() costs {
	c.t.Helper()
	now, err := ask[costs](c.t.Context(), c.client, "GET", "/costs", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return now
}

// drainAndBack changes the table twice: it drains the node and undrains it.
func (c *crowdOf) drainAndBack() {
	c.t.Helper()
	for _, change := range []func(context.Context) (Changed, error){c.client.Drain, c.client.Undrain} {
		_, err := change(c.t.Context())
		_, err2 := c.client.Members(c.t.Context())
		if err := errors.Join(err, err2); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *crowdOf) await(what string, reached func(costs) bool) {
	c.t.Helper()
	waitFor(c.t, what, func() bool { return reached(c.costs()) })
}

// streamReader reads the events of a stream and checks that they are consistent.
type streamReader struct {
	conn net.Conn

	mu    sync.Mutex
	at    uint64 // version of the last batch
	owned int    // owned partitions, according to the batches
	err   error
}

func (f *streamReader) follow() {
	resp, err := http.ReadResponse(bufio.NewReader(f.conn), nil)
	if err == nil {
		defer resp.Body.Close()
		in := sse.NewReader(resp.Body, "batch", maxAnswer)
		for data := []byte(nil); err == nil; {
			if data, err = in.Next(); err == nil {
				err = f.take(data)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// take reads a batch without decoding the JSON, because decoding would take most of the test's time.
func (f *streamReader) take(data []byte) error {
	var version uint64
	var digest string
	var full bool
	if _, err := fmt.Sscanf(string(data[:min(100, len(data))]), `{"version":%d,"digest":%q,"full":%t`, &version, &digest, &full); err != nil {
		return fmt.Errorf("%w in %.100s", err, data)
	}
	released, acquired, _ := bytes.Cut(data, []byte(`"acquired":`))
	f.mu.Lock()
	defer f.mu.Unlock()
	if full != (f.at == 0) || version <= f.at {
		return fmt.Errorf("batch %d (full: %v) after %d", version, full, f.at)
	}
	f.at = version
	f.owned += bytes.Count(acquired, []byte(`"since"`)) - bytes.Count(released, []byte(`"since"`))
	return nil
}

// await returns when the batch of a version has arrived.
func (f *streamReader) await(version uint64, owned int) error {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		at, has, err := f.at, f.owned, f.err
		f.mu.Unlock()
		switch {
		case err != nil:
			return err
		case at >= version && has == owned:
			return nil
		case at >= version || time.Now().After(deadline):
			return fmt.Errorf("at version %d with %d partitions, want %d with %d", at, has, version, owned)
		}
	}
}
