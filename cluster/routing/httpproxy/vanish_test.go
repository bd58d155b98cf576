package httpproxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/redistest"
)

// A server never responds and does not reset its connections, because its host has vanished or its network was cut. A
// request waits for this server only until the request's key has another owner.
func TestOwnerVanishes(t *testing.T) {
	vanishing(t, "accepts and never answers", func(t *testing.T) (string, func()) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String(), nil
	})
	vanishing(t, "is cut off", func(t *testing.T) (string, func()) {
		addr, _ := server(t, named("first"))
		link := redistest.Proxy(t, addr)
		return link.Addr(), link.Hang
	})
}

// vanishing tests requests to an owner that vanishes after its first response. If vanish is nil, the owner never
// responds.
func vanishing(t *testing.T, name string, owner func(t *testing.T) (addr string, vanish func())) {
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		t.Run(name+", "+method, func(t *testing.T) {
			t.Parallel()
			first, vanish := owner(t)
			next, _ := server(t, named("next"))
			o := keyAt(first)
			url := proxyOf(t, o, nil) + "/rooms/a"
			if vanish != nil {
				if status, body, _ := ask(t, method, url, "body"); status != http.StatusOK || !strings.HasPrefix(body, "first") {
					t.Fatalf("%d %s", status, body)
				}
				vanish()
			}
			move := time.AfterFunc(300*time.Millisecond, func() { o.move(next) })
			defer move.Stop()
			status, body, _ := ask(t, method, url, "body")
			if want := "next " + method + ` /rooms/a "body"`; status != http.StatusOK || !strings.HasPrefix(body, want) {
				t.Errorf("%d %s, want %s", status, body, want)
			}
		})
	}
}

// The proxy gives up on requests over a dead HTTP/2 connection, but the connection itself would stay open. So the proxy
// sends pings. When a ping fails, requests that must not run twice also end, and later requests get another connection.
func TestOwnerVanishesHTTP2(t *testing.T) {
	t.Parallel()
	secure := func(name string) *httptest.Server {
		srv := httptest.NewUnstartedServer(named(name))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	first, next := secure("first"), secure("next")
	link := redistest.Proxy(t, strings.TrimPrefix(first.URL, "https://"))
	o := &owners{at: map[string]string{"a": link.Addr(), "b": link.Addr()}}
	url := proxyOf(t, o, func(c *httpproxy.Config) {
		transport := httpproxy.NewTransport()
		transport.TLSClientConfig = first.Client().Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:forcetypeassert // of httptest
		transport.TLSClientConfig.NextProtos = nil
		t.Cleanup(transport.CloseIdleConnections)
		c.Transport, c.Scheme = transport, "https"
	}) + "/rooms/"
	if status, body, _ := ask(t, http.MethodGet, url+"a", ""); status != http.StatusOK || !strings.HasPrefix(body, "first") {
		t.Fatalf("%d %s", status, body)
	}
	link.Hang()
	move := time.AfterFunc(300*time.Millisecond, func() { o.move(strings.TrimPrefix(next.URL, "https://")) })
	defer move.Stop()
	var both sync.WaitGroup
	for path, want := range map[string]string{"a": "200 next", "b": "502 the server closed the connection, and may have carried out the request"} {
		method := map[string]string{"a": http.MethodGet, "b": http.MethodPost}[path]
		both.Go(func() {
			if status, body, _ := ask(t, method, url+path, "body"); !strings.HasPrefix(fmt.Sprint(status, " ", body), want) {
				t.Errorf("%s: %d %s, want %s", method, status, body, want)
			}
		})
	}
	both.Wait()
}

// slow is a server in virtual time that responds after a delay.
type slow struct {
	runs    atomic.Int64
	headers time.Duration // time until the headers arrive
	body    time.Duration // additional time until the body ends
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.runs.Add(1)
	after := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	if err := after(s.headers); err != nil {
		return nil, err
	}
	resp := answer(http.StatusOK)
	in, out := io.Pipe()
	resp.Body = in
	go func() {
		err := after(s.body)
		if err == nil {
			_, err = out.Write([]byte(r.URL.Host))
		}
		_ = out.CloseWithError(err)
	}()
	return resp, nil
}

// A slow but live server has a second to respond after its key has moved. If the request must not run twice, the server
// has unlimited time. When the headers have arrived, the proxy passes on the whole response, however long it takes.
func TestSlowOwner(t *testing.T) {
	const hour = time.Hour
	for name, tt := range map[string]struct {
		method        string
		headers, body time.Duration
		back          time.Duration // when the key returns to its first owner; 0 = never
		to            string        // the address of the next owner
		at            string
		most          time.Duration
	}{
		"the answer comes in time":       {http.MethodGet, 1900 * time.Millisecond, 0, 0, "next", "first", 1900 * time.Millisecond},
		"it takes too long":              {http.MethodGet, hour, 0, 0, "next", "next", 2500 * time.Millisecond},
		"the key comes back":             {http.MethodGet, hour, 0, 1800 * time.Millisecond, "next", "first", hour},
		"the body takes long":            {http.MethodGet, 1500 * time.Millisecond, hour, 0, "next", "first", hour + 1500*time.Millisecond},
		"the next one has no address":    {http.MethodGet, 4 * time.Second, 0, 0, "", "first", 4 * time.Second},
		"the address cannot be asked":    {http.MethodGet, 4 * time.Second, 0, 0, "ftp://next", "first", 4 * time.Second},
		"it must not run twice":          {http.MethodPost, hour, 0, 0, "next", "first", hour},
		"it must not run twice, partial": {http.MethodPatch, hour, 0, 0, "next", "first", hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, first, next := keyAt("first"), &slow{headers: tt.headers, body: tt.body}, &slow{}
				p := newProxy(t, o.place, by(func(r *http.Request) (*http.Response, error) {
					return map[string]*slow{"first": first, "next": next}[r.URL.Host].RoundTrip(r)
				}))
				time.AfterFunc(time.Second, func() { o.move(tt.to) })
				if tt.back > 0 {
					time.AfterFunc(tt.back, func() { o.move("first") })
				}
				began, w := time.Now(), httptest.NewRecorder()
				ctx, cancel := context.WithCancel(t.Context())
				p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, tt.method, "/rooms/a", strings.NewReader("body")))
				cancel()
				if took := time.Since(began); w.Code != http.StatusOK || w.Body.String() != tt.at || took > tt.most {
					t.Errorf("%d %q after %v", w.Code, w.Body, took)
				}
				if first.runs.Load() != 1 {
					t.Errorf("the first owner has run it %d times", first.runs.Load())
				}
				synctest.Wait()
			})
		})
	}
}

// If the server of a key has vanished and RetryTimeout has expired, the proxy still sends the request to the next
// owner, because that owner has not failed yet.
func TestRetryTimeoutBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, vanished := keyAt("first"), &slow{headers: time.Hour}
		p := newProxy(t, o.place, func(c *httpproxy.Config) {
			c.RetryTimeout = 500 * time.Millisecond
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Host {
				case "first":
					o.move("second")
					return answer(http.StatusMisdirectedRequest), nil
				case "second":
					return vanished.RoundTrip(r)
				}
				return answer(http.StatusNoContent), nil
			})
		})
		time.AfterFunc(3*time.Second, func() { o.move("next") })
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rooms/a", nil)); w.Code != http.StatusNoContent {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
