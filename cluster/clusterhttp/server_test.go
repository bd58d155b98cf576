package clusterhttp

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// If a client sends many requests and reads no response, the server keeps one response for it, for a limited time. A
// server that the program made itself does the same.
func TestClientThatNeverReads(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
			srv := NewServer(h)
			if embedded {
				srv = &http.Server{Handler: h}
			}
			conn, err := serve(t, srv).Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			begin := time.Now()
			for err == nil {
				_, err = io.WriteString(conn, "GET /v1/partitions"+tail+"\r\n")
			}
			if took := time.Since(begin); !errors.Is(err, io.ErrClosedPipe) || took > answerTime+5*time.Second {
				t.Errorf("embedded %v: the connection is held for %v: %v", embedded, took, err)
			}
		})
	}
}

// At the limit of connections, the server closes the connection that has waited longest for a request, and never a
// connection with a request in progress.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		limits := newConns(5, 3)
		open := limited(t, limits, release)
		expect := func(what string, open bool, vs ...*visitor) {
			t.Helper()
			synctest.Wait()
			for i, v := range vs {
				if v.closed.Load() == open {
					t.Errorf("%s: number %d is open: %v", what, i+1, !open)
				}
			}
		}

		idle := []*visitor{open("/"), open("/"), open("/")}
		expect("three may wait", true, idle...)
		idle[0].ask("OPTIONS *" + tail + "\r\n") // now idle[1] has waited longest
		synctest.Wait()
		silent := open("")
		expect("one too many waits", false, idle[1])
		begun := open("GET /") // an incomplete request
		expect("the next", false, idle[2])
		expect("the others", true, idle[0], silent, begun)

		long := []*visitor{open("/long")} // also waits until its request has arrived
		expect("the next", false, idle[0])
		long = append(long, open("/long"), open("/long"))
		expect("five of five", true, append(long, silent, begun)...)
		for range 2 { // each new connection replaces a waiting connection
			long = append(long, open("/long"))
		}
		expect("who waits", false, silent, begun)
		expect("who is answered", true, long...)
		expect("there is no place", false, open("/"))
		close(release)
		synctest.Wait()
		if n := len(limits.of); n != 3 || limits.waiting.Len() != 3 {
			t.Errorf("%d connections are left, %d of them waiting", n, limits.waiting.Len())
		}
		for i, v := range long {
			if v.answers.Load() != 1 {
				t.Errorf("answer %d: %d", i+1, v.answers.Load())
			}
		}
		expect("now there is", true, open("/"))
	})
}

// limited returns a function that opens connections to a server with these limits. The server responds immediately,
// except to /long, where it waits for release.
func limited(t *testing.T, limits *conns, release <-chan struct{}) (open func(path string) *visitor) {
	t.Helper()
	srv := NewServer(nil)
	srv.ConnState = limits.changed
	srv.Handler = limits.around(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			<-release
		}
	}))
	p := serve(t, srv)
	return func(path string) *visitor {
		t.Helper()
		conn, err := p.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		v := &visitor{conn: conn}
		go v.read()
		if path != "" {
			v.ask(path)
		}
		synctest.Wait()
		return v
	}
}

// visitor is a client that reads all responses.
type visitor struct {
	conn    net.Conn
	answers atomic.Int32
	closed  atomic.Bool
}

func (v *visitor) ask(path string) {
	request := path // or the start of a request
	if strings.HasPrefix(path, "/") {
		request = "GET " + path + tail + "\r\n"
	}
	go func() { _, _ = io.WriteString(v.conn, request) }()
}

func (v *visitor) read() {
	in := bufio.NewReader(v.conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			v.closed.Store(true)
			return
		}
		_ = resp.Body.Close()
		v.answers.Add(1)
	}
}

// NewServer limits how many connections wait for a request, and how many get a response. The second limit leaves room
// for at least twice the default number of event streams.
func TestNewServerLimitsConnections(t *testing.T) {
	srv := NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	open := func(answered bool) (ours net.Conn) {
		ours, theirs := net.Pipe()
		srv.ConnState(theirs, http.StateNew)
		if answered {
			r := httptest.NewRequestWithContext(srv.ConnContext(t.Context(), theirs), "GET", "/", nil)
			srv.Handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		_ = ours.SetReadDeadline(time.Unix(0, 0))
		return ours
	}
	isOpen := func(conn net.Conn) bool {
		_, err := conn.Read(nil)
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	first := open(false)
	for range maxWaiting - 1 {
		open(false)
	}
	if !isOpen(first) {
		t.Error("too few may wait")
	}
	if open(false); isOpen(first) {
		t.Error("too many may wait")
	}
	for i := range maxConns {
		if !isOpen(open(true)) {
			t.Fatalf("only %d get a response", i)
		}
	}
	if isOpen(open(false)) {
		t.Error("too many get a response")
	}
	if maxConns < 2*1024+maxWaiting {
		t.Error("too few for the event streams")
	}
}

// If the server closes a waiting TLS connection to accept another one, closing takes no time, even if the client reads
// nothing. Otherwise the server could not accept connections in the meantime.
func TestTLSConnectionMakesRoom(t *testing.T) {
	like := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: like.TLS.Certificates, SessionTicketsDisabled: true}
	like.Close()
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(nil)
		ours, theirs := net.Pipe()
		deaf, secure := tls.Client(ours, &tls.Config{InsecureSkipVerify: true}), tls.Server(theirs, config)
		go func() { _ = deaf.Handshake() }()
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		srv.ConnState(secure, http.StateNew)
		begin := time.Now()
		for range maxWaiting {
			_, other := net.Pipe()
			srv.ConnState(other, http.StateNew)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("all others waited for %v", took)
		}
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
	})
}
