package httpproxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Key returns the key of a request. If Key fails, the proxy responds with a 400 and the text of the error.
type Key func(*http.Request) (string, error)

// FromPath uses the nth segment of the path as the key, unescaped. For example, segment 2 of
// /rooms/standup/join is standup.
func FromPath(n int) Key {
	return func(r *http.Request) (string, error) {
		segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		if n < 1 || n > len(segments) || segments[n-1] == "" {
			return "", fmt.Errorf("the path has no segment %d, which names the key", n)
		}
		return url.PathUnescape(segments[n-1])
	}
}

// FromQuery uses the value of a query parameter as the key.
func FromQuery(name string) Key {
	return func(r *http.Request) (string, error) {
		return found(r.URL.Query().Get(name), "parameter", name)
	}
}

// FromHeader uses the value of a header as the key.
func FromHeader(name string) Key {
	return func(r *http.Request) (string, error) { return found(r.Header.Get(name), "header", name) }
}

// FromCookie uses the value of a cookie as the key.
func FromCookie(name string) Key {
	return func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil {
			return found("", "cookie", name)
		}
		return found(c.Value, "cookie", name)
	}
}

func found(value, what, name string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("the request has no %s %s, which names the key", what, name)
	}
	return value, nil
}

// ParseKey returns the Key for a text of the form path:N, query:NAME, header:NAME or cookie:NAME.
func ParseKey(text string) (Key, error) {
	kind, name, _ := strings.Cut(text, ":")
	if kind == "path" {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > 100 {
			return nil, fmt.Errorf("path:%.20s: want the number of a segment, from path:1", name)
		}
		return FromPath(n), nil
	}
	from, ok := map[string]func(string) Key{"query": FromQuery, "header": FromHeader, "cookie": FromCookie}[kind]
	if !ok || name == "" {
		return nil, errors.New("want path:N, query:NAME, header:NAME or cookie:NAME")
	}
	return from(name), nil
}
