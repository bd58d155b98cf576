// Package dashboard is the page that shows people what a node thinks of its
// cluster. It is a client of the HTTP API like any other: it reads /v1/events,
// /v1/members and /v1/partitions beside itself and knows nothing that they do not
// tell.
//
// The page and all that belongs to it are embedded in the program. It loads nothing
// from elsewhere, so it works offline, and its Content-Security-Policy allows no
// inline script or style and no other origin. What a node says of itself is only
// ever shown as text.
//
// Its addresses are relative, so it works below a prefix too, if that ends in a
// slash.
//
// A token that an operator enters stays in the page's memory: it is sent as the
// header Authorization and is stored nowhere.
package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"path"
	"time"
)

// Info is what the page cannot learn from the API.
type Info struct {
	Cluster  string        // its name
	LeaseTTL time.Duration // what the age of a lease is shown against
	Rooms    bool          // rooms are pinned, so they can be looked up
	Demo     bool          // /demo beside the page starts and stops nodes
}

//go:embed page
var files embed.FS

// policy allows the page what it needs, and no more. Trusted types make the
// browser refuse to read any string as markup, whatever a fault in the page's
// scripts does with it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at GET / and its parts at GET /dashboard/. Everything
// else is not found.
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
		h.Set("X-Frame-Options", "DENY")   // for browsers that do not know frame-ancestors
		h.Set("Cache-Control", "no-store") // the parts of two versions do not fit together
		mux.ServeHTTP(w, r)
	})
}

// render makes the page. It fails only if the page itself is wrong.
func render(info Info) []byte {
	var page bytes.Buffer
	t := template.Must(template.ParseFS(files, "page/index.html"))
	if err := t.Execute(&page, info); err != nil {
		panic(err)
	}
	return page.Bytes()
}

func part(w http.ResponseWriter, r *http.Request) {
	// Not by the system's table of types, which may know .js as something else.
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
	_, _ = w.Write(content)
}
