package clusterotel

import (
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Handler wraps h, which serves the API of package clusterhttp. Handler needs a surrounding middleware that
// starts a span for each request, such as otelhttp. Handler adds the route to that span, and removes the name
// of the room from the path. Place Handler directly inside the middleware, and http.StripPrefix around both.
func (t *Tracing) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		span := trace.SpanFromContext(r.Context())
		if !span.IsRecording() {
			h.ServeHTTP(w, r)
			return
		}
		if !t.names {
			span.SetAttributes(attribute.String("url.path", masked(r.URL.EscapedPath())))
		}
		h.ServeHTTP(w, r)
		if _, route, ok := strings.Cut(r.Pattern, " "); ok {
			span.SetAttributes(attribute.String("http.route", route))
		}
	})
}

// Transport wraps base for the HTTP client of a clusterhttp.Client. If base is nil, it wraps
// http.DefaultTransport. Transport needs a surrounding transport that starts a span for each request and
// propagates the trace in headers. Transport names that span after the route, and removes names of rooms and
// keys from it.
func (t *Tracing) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base, t}
}

type transport struct {
	base http.RoundTripper
	*Tracing
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		path := masked(r.URL.EscapedPath())
		span.SetName(r.Method + " " + path)
		if !t.names {
			at := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host}
			span.SetAttributes(attribute.String("url.full", at.String()+path))
		}
	}
	return t.base.RoundTrip(r)
}

// Brief reports whether a request should have a span. It returns false for streams, because their spans would last for
// hours, and for probes and scrapes, because they would create a trace every few seconds. Use Brief with
// otelhttp.WithFilter.
func Brief(r *http.Request) bool {
	path := r.URL.EscapedPath() // escaped, so a slash in the name of a room is not a separator
	for _, end := range []string{"/v1/events", "/v1/table", "/healthz", "/readyz", "/metrics"} {
		if strings.HasSuffix(path, end) {
			return false
		}
	}
	_, room, _ := strings.Cut(path, "/v1/rooms/")
	return !strings.HasSuffix(room, "/follow")
}

// masked removes the name of the room from an escaped path. The path can be outside the API.
func masked(path string) string {
	before, rest, ok := strings.Cut(path, "/rooms/")
	if plain, _, escaped := strings.Cut(before, "%"); escaped {
		return plain // only names are escaped, unless /rooms/ itself is escaped
	}
	if !ok {
		return path
	}
	before += "/rooms/{room}"
	for _, call := range []string{"/resolve", "/move", "/report", "/follow", "/relays"} {
		if strings.HasSuffix(rest, call) {
			return before + call
		}
	}
	return before
}
