// Package pipenet serves HTTP over net.Pipe for tests. It works in a testing/synctest bubble, and buffers
// nothing.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Net is a network with a single HTTP server.
type Net struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Serve runs srv until the test ends.
func Serve(t *testing.T, srv *http.Server) *Net {
	t.Helper()
	n := &Net{conns: make(chan net.Conn), closed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(n)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-ended
	})
	return n
}

// Accept implements net.Listener.
func (n *Net) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Net) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Net) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Dial connects to the server.
func (n *Net) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Transport returns an HTTP transport that sends every request to the server, whatever the URL is. At the end
// of the test, its idle connections are closed.
func (n *Net) Transport(t *testing.T) *http.Transport {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx) }}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}
