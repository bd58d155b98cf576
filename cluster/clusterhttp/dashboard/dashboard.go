// Package dashboard is a web page that shows one node's view of its cluster. It is an ordinary client of the
// HTTP API and has no other source. Problems come from /v1/doctor, and events from /v1/history. The page does
// not detect either by itself.
//
// The page and its parts are embedded in the binary. It loads nothing from other
// servers, so it works offline. Its Content-Security-Policy allows no inline script or
// style and no other origin. The page shows values from nodes as text only, never as
// markup.
//
// Its URLs are relative, so it also works below a prefix that ends in a slash.
//
// A token that an operator enters only stays in the memory of the page. It is sent in the header
// Authorization and not stored.
package dashboard

import (
	"embed"
	"html"
	"net/http"
	"path"
	"strings"
)

// Info holds the values that the API does not provide.
type Info struct {
	Cluster string // its name
	Rooms   bool   // the API can look up rooms
	Demo    bool   // /demo next to the page starts and stops nodes
}

//go:embed page
var files embed.FS

// policy allows only what the page needs. Trusted types make the browser reject any
// string as markup, even if a bug in a script of the page tries it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at GET / and its parts at GET /dashboard/. Other paths get a
// 404.
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
		h.Set("Cache-Control", "no-store") // parts of different versions do not fit together
		mux.ServeHTTP(w, r)
	})
}

// render fills in the page. It does not use html/template, which calls methods by name, so that the linker
// would keep all exported methods of a program that serves the page.
func render(info Info) []byte {
	page, err := files.ReadFile("page/index.html")
	if err != nil {
		panic(err) // cannot happen: it is embedded
	}
	has := ""
	if info.Rooms {
		has += " data-rooms"
	}
	if info.Demo {
		has += " data-demo"
	}
	return []byte(strings.NewReplacer("{{has}}", has, "{{cluster}}", html.EscapeString(info.Cluster)).Replace(string(page)))
}

func part(w http.ResponseWriter, r *http.Request) {
	// Don't use the system's table of types, which may map .js to another type.
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
