package httpproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
)

// transport is a RoundTripper that calls a function of the test.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody}
}

// A transport may read from the request body after it has returned the response. If the proxy sends the request again,
// only the new attempt can read from the body.
func TestLateRead(t *testing.T) {
	var first io.Reader // the body of the first attempt
	var got []byte
	var late error
	url := proxyOf(t, keyAt("127.0.0.1:1"), func(c *httpproxy.Config) {
		c.ReplayBytes = -1
		c.Transport = transport(func(r *http.Request) (*http.Response, error) {
			if first == nil {
				first = r.Body
				return answer(http.StatusMisdirectedRequest), nil
			}
			_, late = first.Read(make([]byte, 4))
			var err error
			got, err = io.ReadAll(r.Body)
			return answer(http.StatusOK), err
		})
	})
	status, _, _ := ask(t, http.MethodPost, url+"/rooms/a", "a long upload")
	if status != http.StatusOK || string(got) != "a long upload" || late == nil {
		t.Errorf("%d: the second attempt has %q; a late read of the first one: %v", status, got, late)
	}
}

// A transport without support for traces does not tell whether a failed request has reached a server. So the proxy
// sends a POST only once.
func TestUntraced(t *testing.T) {
	for method, again := range map[string]bool{http.MethodPost: false, http.MethodGet: true} {
		sent := 0
		url := proxyOf(t, keyAt("127.0.0.1:1"), by(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 2 {
				return answer(http.StatusOK), nil
			}
			return nil, errors.New("it breaks")
		}))
		status, body, _ := ask(t, method, url+"/rooms/a", "body")
		if want := map[bool]int{false: http.StatusBadGateway, true: http.StatusOK}[again]; status != want || sent == 2 != again {
			t.Errorf("%s: %d %s, sent %d times", method, status, strings.TrimSpace(body), sent)
		}
	}
}

// The server of an idle connection has stopped, so writing to the connection fails. The transport connects again and is
// refused, so the request has not reached a server, and the proxy sends it again. With an Idempotency-Key, the
// transport may connect again even after it has sent the request, so the proxy does not send it again.
func TestStaleConnection(t *testing.T) {
	for header, want := range map[string]string{"": "200 next", "Idempotency-Key": "502 the server closed the connection"} {
		first, _ := server(t, named("first"))
		next, _ := server(t, named("next"))
		o := keyAt(first)
		var gone atomic.Bool
		transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == first && gone.Load() {
				o.move(next)
				return nil, syscall.ECONNREFUSED
			}
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &stale{conn, first, &gone}, err
		}}
		t.Cleanup(transport.CloseIdleConnections)
		p := newProxy(t, o.place, func(c *httpproxy.Config) { c.Transport = transport })
		for _, name := range []string{"200 first", want} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/rooms/a", strings.NewReader("body"))
			if header != "" {
				r.Header.Set(header, "1")
			}
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, r); !strings.HasPrefix(fmt.Sprint(w.Code, " ", w.Body), name) {
				t.Errorf("header %q: %d %s, want %s", header, w.Code, w.Body, name)
			}
			gone.Store(true)
		}
	}
}

// stale is a connection whose writes fail once the server at addr is gone.
type stale struct {
	net.Conn
	addr string
	gone *atomic.Bool
}

func (c *stale) Write(b []byte) (int, error) {
	if c.gone.Load() && c.RemoteAddr().String() == c.addr {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

// If a client breaks off its body, the proxy responds with 400 and does not blame the server.
func TestClientBreaksOff(t *testing.T) {
	for name, tt := range map[string]struct {
		length int64
		kept   int64
	}{"a short body": {10, 0}, "a stream": {10, -1}, "a stream of unknown length": {-1, 0}} {
		p := newProxy(t, keyAt("127.0.0.1:1").place, func(c *httpproxy.Config) {
			c.ReplayBytes = tt.kept
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				_, err := io.Copy(io.Discard, r.Body)
				return answer(http.StatusOK), err
			})
		})
		for _, gone := range []bool{false, true} { // whether the proxy's server has noticed that the client is gone
			ctx, cancel := context.WithCancel(t.Context())
			body := io.MultiReader(strings.NewReader("half"), reader(func([]byte) (int, error) {
				if gone {
					cancel()
				}
				return 0, io.ErrUnexpectedEOF
			}))
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/rooms/a", body)
			r.ContentLength = tt.length
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
				t.Errorf("%s, gone %v: %d %s", name, gone, w.Code, w.Body)
			}
			cancel()
		}
	}
}

// reader is an io.Reader that calls a function of the test.
type reader func([]byte) (int, error)

func (f reader) Read(b []byte) (int, error) { return f(b) }
