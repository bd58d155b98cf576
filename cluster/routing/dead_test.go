package routing

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// link forwards connections to a server. When a test increments cuts, the open connections fall silent without being
// closed, as after the crash of a load balancer.
type link struct {
	net.Listener
	cuts atomic.Int64
	wait sync.WaitGroup
}

func linkTo(t *testing.T, server string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{Listener: listener}
	l.wait.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				_ = near.Close()
				continue
			}
			context.AfterFunc(t.Context(), func() { _ = near.Close(); _ = far.Close() })
			for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
				l.wait.Go(func() { l.pass(from, to, l.cuts.Load()) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		l.wait.Wait()
	})
	return l
}

func (l *link) pass(from, to net.Conn, cuts int64) {
	buf := make([]byte, 1<<14)
	for {
		n, err := from.Read(buf)
		if l.cuts.Load() != cuts {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// All requests to a server share one HTTP/2 connection. If that connection is dead, the kernel needs many minutes to
// notice. So the client sends pings, closes the dead connection and opens another.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	l := linkTo(t, srv.Listener.Addr().String())
	cfg, own := Config{IdleTimeout: leastIdle}.withDefaults()
	defer own.CloseIdleConnections()
	trusted := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs //nolint:forcetypeassert // of httptest
	own.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cfg.HTTP.Do(r)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Fatalf("the connection is of %s", resp.Proto)
		}
		return true
	}
	if !answers() {
		t.Fatal("no answer")
	}
	l.cuts.Add(1)
	for deadline := time.Now().Add(time.Minute); !answers(); {
		if time.Now().After(deadline) {
			t.Fatal("the dead connection is still in use")
		}
	}
}
