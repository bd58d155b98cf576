package httpproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/roost-cluster/roost/follow/httpproxy"
)

// The proxy beside httputil alone, over loopback, with one caller for each CPU (S7.2).
func BenchmarkProxy(b *testing.B) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer app.Close()
	to, err := url.Parse(app.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	p, err := httpproxy.New(httpproxy.Config{
		Place: func(string) (string, bool, error) { return to.Host, false, nil },
		Key:   httpproxy.FromPath(2), Transport: transport, Log: quiet,
	})
	if err != nil {
		b.Fatal(err)
	}
	alone := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() }}
	for name, h := range map[string]http.Handler{"roost": p, "httputil": alone} {
		b.Run(name, func(b *testing.B) {
			srv := httptest.NewServer(h)
			defer srv.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
			defer client.CloseIdleConnections()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Get(srv.URL + "/rooms/standup")
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		})
	}
}
