package httpproxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
)

// placing returns a proxy to a server. place gets the number of the call.
func placing(t *testing.T, place func(call int64) (string, error), to http.RoundTripper) *httpproxy.Proxy {
	t.Helper()
	var calls atomic.Int64
	return newProxy(t, func(string) (string, bool, error) {
		addr, err := place(calls.Add(1))
		return addr, false, err
	}, by(to.RoundTrip))
}

// A response does not have to wait until a slow Place returns.
func TestSlowPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := placing(t, func(call int64) (string, error) {
			if call > 1 {
				time.Sleep(2 * time.Second)
			}
			return "first", nil
		}, &slow{headers: 250 * time.Millisecond})
		began, w := time.Now(), httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rooms/a", nil))
		if took := time.Since(began); w.Code != http.StatusOK || took != 250*time.Millisecond {
			t.Errorf("%d after %v", w.Code, took)
		}
		time.Sleep(time.Minute) // Place ends
	})
}

// If Place or the transport panics, the panic happens in the goroutine of the request, where the HTTP server recovers
// from it. Nothing keeps running after the panic.
func TestPanics(t *testing.T) {
	for name, tt := range map[string]struct {
		place func(int64) (string, error)
		to    http.RoundTripper
	}{
		"Place": {func(call int64) (string, error) {
			if call > 1 {
				panic("made by the test")
			}
			return "first", nil
		}, &slow{headers: time.Hour}},
		"Transport": {
			func(int64) (string, error) { return "first", nil },
			transport(func(*http.Request) (*http.Response, error) { panic("made by the test") }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				p := placing(t, func(call int64) (string, error) {
					calls.Store(call)
					return tt.place(call)
				}, tt.to)
				func() {
					defer func() {
						if problem := recover(); problem != "made by the test" {
							t.Errorf("it panics with %v", problem)
						}
					}()
					p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/rooms/a", nil))
				}()
				before := calls.Load()
				time.Sleep(time.Minute)
				if after := calls.Load(); after != before {
					t.Errorf("Place was called %d times after the panic", after-before)
				}
			})
		})
	}
}

// If a server does not respond before a deadline that the application has set, the proxy responds with an error. It
// must not treat the expired deadline like a client that has disconnected.
func TestDeadline(t *testing.T) {
	for method, place := range map[string]func(int64) (string, error){
		http.MethodPost: func(int64) (string, error) { return "first", nil },
		http.MethodGet:  func(int64) (string, error) { return "first", nil },
		http.MethodPut:  func(int64) (string, error) { return "", nil }, // no server was asked
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			w := httptest.NewRecorder()
			placing(t, place, &slow{headers: time.Hour}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/rooms/a", nil))
			want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusGatewayTimeout}[method == http.MethodPut]
			if w.Code != want {
				t.Errorf("%s: %d %s, want %d", method, w.Code, w.Body, want)
			}
		})
	}
}

// If a handler in front of the proxy limits the size of the body, the proxy responds with 413, whether or not it keeps
// the body in memory.
func TestBodyTooLarge(t *testing.T) {
	addr, _ := server(t, named("first"))
	for _, kept := range []int64{0, -1} {
		p := newProxy(t, keyAt(addr).place, func(c *httpproxy.Config) { c.ReplayBytes = kept })
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/rooms/a", strings.NewReader("a long body"))
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		if p.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge || w.Body.String() != "the body has more than 3 bytes\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// NewTransport works even if a program has replaced http.DefaultTransport.
func TestDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = transport(before.RoundTrip)
	made := httpproxy.NewTransport()
	if made.TLSHandshakeTimeout == 0 || made.IdleConnTimeout == 0 || !made.ForceAttemptHTTP2 || made.HTTP2.PingTimeout == 0 {
		t.Errorf("%+v", made)
	}
}
