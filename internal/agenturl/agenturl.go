// Package agenturl reads the address of an agent's HTTP API, as programs and people write it.
package agenturl

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// Parse returns host:port, or a URL with or without a path, as a URL without a slash at its end.
func Parse(addr string) (string, error) {
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is neither host:port nor the URL of an agent", Shown(addr))
	}
	return strings.TrimSuffix(base, "/"), nil
}

// Shown returns an address without its credentials, for logs and errors.
func Shown(addr string) string {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		scheme, rest = "", addr
	} else {
		scheme += "://"
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = "…" + host[at:]
	}
	if hasPath {
		host += "/"
	}
	return scheme + host + path
}

// credentials are the part of a URL before its host.
var credentials = regexp.MustCompile(`(://)[^\s"'` + "`" + `]*@`)

// Redacted hides the credentials of all URLs in a text that quotes some. For one address, Shown is exact.
func Redacted(text string) string { return credentials.ReplaceAllString(text, "$1…@") }

// Private reports whether the network cannot read what is sent to an agent: it speaks https, or is on this machine.
// A name other than localhost may stand for any host.
func Private(addr string) bool {
	base, err := Parse(addr)
	if err != nil {
		return false
	}
	u, _ := url.Parse(base) // Parse has seen it
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
