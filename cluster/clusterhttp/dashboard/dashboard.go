// Package dashboard is a web page that shows one node's view of its cluster. clusterhttp.Handler already
// serves the page at /. If you mount the API in a mux of your own, serve the page next to it:
//
//	mux.Handle("/v1/", clusterhttp.Handler(agent, clusterhttp.Options{}))
//	mux.Handle("/", dashboard.Handler(dashboard.Info{Cluster: "calls"}))
//
// # Guarantees
//
//  1. The page is an ordinary client of the HTTP API and has no other source of data. Problems come from
//     /v1/doctor, and events from /v1/history.
//  2. The page and its parts are embedded in the binary. The page loads nothing from other servers, so it works
//     offline. Its Content-Security-Policy allows no inline script or style and no other origin.
//  3. The page shows values from nodes only as text, never as markup.
//  4. A token that an operator enters remains in the memory of the page and is never stored. The page sends it
//     in the header Authorization.
//
// # Limits
//
// The page finds the API by relative URLs. If you mount the page under a prefix, the prefix must end in a
// slash, and the API must be under the same prefix.
package dashboard

import (
	"embed"
	"html"
	"net/http"
	"path"
	"strings"
)

// Info has the values that the page cannot get from the API.
type Info struct {
	Cluster string // name of the cluster
	Rooms   bool   // the API can look up rooms
	Metrics bool   // GET /metrics is next to the page
	Demo    bool   // a demo server at /demo next to the page starts and stops nodes
}

//go:embed page
var files embed.FS

// policy is the page's Content-Security-Policy, which allows only what the page needs. With trusted types, the browser
// refuses strings as markup, even if a script of the page has a bug.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at GET / and its parts at GET /dashboard/. Other paths respond with 404.
func Handler(info Info) http.Handler {
	index := render(info)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(index)
	})
	mux.HandleFunc("GET /dashboard/{file}", part)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")   // for browsers that do not support frame-ancestors
		h.Set("Cache-Control", "no-store") // parts of different versions do not fit together
		mux.ServeHTTP(w, r)
	})
}

// render inserts the values of info into the page. render does not use html/template, because that package
// calls methods by name. The linker would therefore keep all exported methods of an application that serves
// the page.
func render(info Info) []byte {
	page, err := files.ReadFile("page/index.html")
	if err != nil {
		panic(err) // cannot happen: it is embedded
	}
	has := ""
	if info.Rooms {
		has += " data-rooms"
	}
	if info.Metrics {
		has += " data-metrics"
	}
	if info.Demo {
		has += " data-demo"
	}
	return []byte(strings.NewReplacer("{{has}}", has, "{{cluster}}", html.EscapeString(info.Cluster)).Replace(string(page)))
}

func part(w http.ResponseWriter, r *http.Request) {
	// Don't use the MIME types of the operating system, which may map .js to another type.
	types := map[string]string{
		".css": "text/css; charset=utf-8",
		".js":  "text/javascript; charset=utf-8",
		".svg": "image/svg+xml",
	}
	name := r.PathValue("file")
	kind := types[path.Ext(name)]
	content, err := files.ReadFile("page/" + name)
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(content) //nolint:gosec // files of this binary
}
