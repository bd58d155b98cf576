package httpproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
)

// BenchmarkProxy compares the proxy with httputil alone, over loopback. One of the runs alternates requests between the
// two, so that other work on the machine slows both down.
func BenchmarkProxy(b *testing.B) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer app.Close()
	to, err := url.Parse(app.URL)
	if err != nil {
		b.Fatal(err)
	}
	var shared http.RoundTripper
	p := newProxy(b, func(string) (string, bool, error) { return to.Host, false, nil }, func(c *httpproxy.Config) { shared = c.Transport })
	alone := &httputil.ReverseProxy{Transport: shared, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() }}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	get := func(url string) {
		resp, err := client.Get(url + "/rooms/standup")
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	var urls [2]string
	for i, h := range []http.Handler{p, alone} {
		srv := httptest.NewServer(h)
		defer srv.Close()
		urls[i] = srv.URL
		b.Run([]string{"roost", "httputil"}[i], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				get(srv.URL)
			}
		})
	}
	b.Run("in turns", func(b *testing.B) {
		var took [2]time.Duration
		for b.Loop() {
			for i, url := range urls {
				began := time.Now()
				get(url)
				took[i] += time.Since(began)
			}
		}
		b.ReportMetric(float64(took[0])/float64(b.N), "ns/roost")
		b.ReportMetric(float64(took[1])/float64(b.N), "ns/httputil")
		b.ReportMetric(float64(took[0])/float64(took[1]), "roost/httputil")
	})
}
