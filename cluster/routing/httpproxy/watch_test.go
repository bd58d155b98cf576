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

// placing is a proxy to a server, by a Place as a test says.
func placing(t *testing.T, place func(call int64) (string, error), to http.RoundTripper) *httpproxy.Proxy {
	t.Helper()
	var calls atomic.Int64
	return newProxy(t, func(string) (string, bool, error) {
		addr, err := place(calls.Add(1))
		return addr, false, err
	}, by(to.RoundTrip))
}

// An answer does not wait for a Place that takes its time.
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

// A panic of Place or of the transport is one of the request, which the server of HTTP survives, and nothing
// goes on after it.
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

// A server that does not answer until a deadline of the application is not a client that has gone.
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

// A limit of what runs before the proxy is answered as such, whether the body is kept or a stream.
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

// A program may have put another http.DefaultTransport into place.
func TestDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = transport(before.RoundTrip)
	made := httpproxy.NewTransport()
	if made.TLSHandshakeTimeout == 0 || made.IdleConnTimeout == 0 || !made.ForceAttemptHTTP2 || made.HTTP2.PingTimeout == 0 {
		t.Errorf("%+v", made)
	}
}
