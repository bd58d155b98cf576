package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
)

func TestHandler(t *testing.T) {
	h := dashboard.Handler(dashboard.Info{Cluster: `<b>"media"`})
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"X-Frame-Options": "DENY", "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		return w
	}
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/dashboard/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/dashboard/base.css", 200, "text/css; charset=utf-8"},
		{"GET", "/dashboard/icon.svg", 200, "image/svg+xml"},
		{"GET", "/dashboard/index.html", 404, ""}, // a template
		{"GET", "/dashboard/none.js", 404, ""},
		{"GET", "/dashboard/..%2Fdashboard.go", 404, ""},
		{"GET", "/dashboard/", 404, ""},
		{"GET", "/main.js", 404, ""},
		{"POST", "/", 405, ""},
	} {
		w := get(c.method, c.path)
		if kind := w.Header().Get("Content-Type"); w.Code != c.status || (c.kind != "" && kind != c.kind) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, kind)
		}
	}
	page := get("GET", "/").Body.String()
	if want := "&lt;b&gt;&#34;media&#34; · roost"; !strings.Contains(page, want) {
		t.Errorf("the page lacks %s", want)
	}
	for _, unwanted := range []string{"<b>", "data-rooms", "data-metrics", "data-demo", "http://", "https://", "style="} {
		if strings.Contains(page, unwanted) {
			t.Errorf("the page has %s", unwanted)
		}
	}
}
