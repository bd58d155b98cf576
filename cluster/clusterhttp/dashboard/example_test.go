package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
)

// clusterhttp.Handler already serves the page. Serve it yourself to show it below another path.
func ExampleHandler() {
	page := dashboard.Handler(dashboard.Info{Cluster: "calls"})
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
